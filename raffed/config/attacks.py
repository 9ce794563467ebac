"""Modelled attacks of clients: the fields of a plan of faults that describe them. This imports no torch.

An attacker is an attacker in the whole run. What it does is modelled on its upload ("sign_flip", "scaling",
"gaussian") or on its training data ("label_flip", "backdoor"). Everything else about it is that of an honest
client: it is drawn, trains, is scored, and keeps its private state.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Final, Literal, TypeAlias

from raffed.config.client_numbers import client_numbers
from raffed.config.validation import Doc, Range
from raffed.errors import UsageError

AttackKind: TypeAlias = Literal["", "sign_flip", "scaling", "gaussian", "label_flip", "backdoor"]
ON_UPLOADS: Final = ("sign_flip", "scaling", "gaussian", "backdoor")  # those whose strength counts
ON_DATA: Final = ("label_flip", "backdoor")
PATCH = 3  # height and width of the backdoor's patch, in pixels


@dataclass(frozen=True, kw_only=True)
class Attacks:
    """Which clients attack, and how."""

    attack: Annotated[
        AttackKind,
        Doc(
            "What attackers do. sign_flip sends w^t − s·Δ in place of w^t + Δ, scaling sends w^t + s·Δ, "
            "gaussian sends w^t + N(0, s²), label_flip trains on the labels C − 1 − y, backdoor trains on "
            "images with a patch and the label of its target, and sends w^t + s·Δ."
        ),
    ] = ""
    attackers: Annotated[
        float,
        Range(0.0, 1.0),
        Doc(
            "Fraction of all clients that attack: round(fraction · N) clients, which are drawn once for the "
            "run."
        ),
    ] = 0.0
    attacker_list: Annotated[str, Doc("Clients that attack, such as 0,3,7-9, instead of a fraction.")] = ""
    attack_strength: Annotated[
        float | None,
        Range(0.0, 1e6, open_low=True),
        Doc("Strength s of the attack; without it: 1, and 10 for scaling."),
    ] = None
    backdoor_target: Annotated[int, Range(0), Doc("Class as which patched images are to be classified.")] = 0
    backdoor_share: Annotated[
        float,
        Range(0.0, 1.0, open_low=True),
        Doc("Fraction of an attacker's training samples that get the patch."),
    ] = 0.5

    @property
    def strength(self) -> float:
        """The strength s of the attack."""
        usual = 10.0 if self.attack == "scaling" else 1.0
        return usual if self.attack_strength is None else self.attack_strength

    def listed_attackers(self) -> list[int]:
        """Return the attackers that are listed, in ascending order.

        Raises:
            UsageError: The list cannot be read.
        """
        return sorted(set(client_numbers("faults.attacker_list", self.attacker_list)))

    def check_attack(self) -> None:
        """Check that the fields about an attack fit together.

        Raises:
            UsageError: One of them would have no effect, or two contradict each other.
        """
        given = [name for name in ("attackers", "attacker_list", "attack_strength") if getattr(self, name)]
        given += [] if self.attack == "backdoor" else self._of_backdoor()
        if not self.attack and given:
            raise UsageError(f"faults.{given[0]} has no effect without faults.attack; also give --attack")
        if self.attack and bool(self.attackers) == bool(self.listed_attackers()):
            raise UsageError(
                f"faults.attack = {self.attack!r} needs to know who attacks: give either faults.attackers, "
                "a fraction (--attackers 0.2), or faults.attacker_list"
            )
        idle = [name for name in given if name not in ("attackers", "attacker_list")]
        if self.attack in ON_UPLOADS:
            idle = [name for name in idle if name != "attack_strength"]
        if idle:
            raise UsageError(
                f"faults.{idle[0]} has no effect with faults.attack = {self.attack!r}; leave it out"
            )

    def _of_backdoor(self) -> list[str]:
        """Return the fields of a backdoor that have another value than usual."""
        usual = {one.name: one.default for one in fields(self) if one.name.startswith("backdoor_")}
        return [name for name, value in usual.items() if getattr(self, name) != value]


__all__ = ["ON_DATA", "ON_UPLOADS", "PATCH", "AttackKind", "Attacks"]
