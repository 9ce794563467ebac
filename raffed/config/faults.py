"""Planned faults and attacks of a federation, as plain data of the run. This module imports no torch.

Faults are part of the model of the federation, so they change its result. They do so in the same way wherever
the run is executed and after any resume. A process that dies is a different matter: it changes no bit of the
result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, get_args

from raffed.config.federation import client_numbers
from raffed.config.validation import Doc, Range, check_fields
from raffed.errors import UsageError, check_choice

# Modelled attacks of clients: the fields of a plan of faults that describe them. This imports no torch.
#
# An attacker is an attacker in the whole run. What it does is modelled on its upload ("sign_flip",
# "scaling", "gaussian") or on its training data ("label_flip", "backdoor"). Everything else about it is
# that of an honest client: it is drawn, trains, is scored, and keeps its private state.


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
            "Fraction of the training clients that attack: round(fraction · N) of them, drawn once for the "
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
        usual = {field.name: field.default for field in fields(self) if field.name.startswith("backdoor_")}
        return [name for name, value in usual.items() if getattr(self, name) != value]


FaultKind = Literal["drop", "late", "corrupt", "straggle"]
KINDS: tuple[str, ...] = get_args(FaultKind)
Probability = Annotated[float, Range(0.0, 1.0)]
FaultOutcome = Literal["dropped", "late", "refused", "counted"]


class ParticipantFault(NamedTuple):
    """What happens to a drawn client in one round.

    Attributes:
        outcome: What becomes of its upload: "counted", "late", "refused", or "dropped" if it does nothing at
            all.
        completed_fraction: Fraction of the steps of shared training that the client makes, in (0, 1].
    """

    outcome: FaultOutcome = "counted"
    completed_fraction: float = 1.0


NO_FAULT = ParticipantFault()


@dataclass(frozen=True)
class Faults(Attacks):
    """Which faults happen in a run, at random or at listed rounds, and which clients attack.

    Every probability is per drawn client and round. The kinds are drawn independently of each other. If
    several kinds strike one client in one round, "drop" goes before "late", and "late" before "corrupt".

    The aggregation weights p_i are computed over the clients whose uploads count. If no upload counts in a
    round, the server's step changes nothing.

    Raises:
        UsageError: A value is outside its range, or `at` cannot be read.
    """

    drop: Annotated[
        Probability,
        Doc(
            "Probability that a client does not answer. It neither receives, trains nor sends, and its "
            "client state stays as it was."
        ),
    ] = 0.0
    late: Annotated[
        Probability,
        Doc(
            "Probability that an upload misses its round. The client has trained and keeps its private "
            "state. The server discards the upload and does not apply it in a later round either, because "
            "the messages of methods have no meaning for a server that has moved on."
        ),
    ] = 0.0
    corrupt: Annotated[
        Probability,
        Doc(
            "Probability that an upload arrives damaged. The server refuses the whole upload and counts it "
            "as refused. The client is not told and keeps its private state."
        ),
    ] = 0.0
    straggle: Annotated[
        Probability,
        Doc(
            "Probability that a client makes only a part of its steps of shared training. Private training "
            "is complete, because nobody waits for it. The upload counts with the client's usual weight."
        ),
    ] = 0.0
    straggle_share: Annotated[
        float,
        Range(0.0, 1.0, open_low=True),
        Doc(
            "Fraction of the steps that such a client makes in every shared pass, rounded up to whole steps."
        ),
    ] = 0.5
    corrupt_kind: Annotated[
        Literal["nan", "range"],
        Doc(
            "How an upload is damaged. `nan` puts a NaN into it, and `range` a number outside the range of "
            "exact sums."
        ),
    ] = "nan"
    at: Annotated[
        str,
        Doc(
            "Further faults at chosen places, such as `drop 3@2, corrupt 7@5-9`. They are written as KIND "
            "CLIENT@ROUND or KIND CLIENT@FROM-TO and separated by commas. Clients are numbered from 0 and "
            "rounds from 1."
        ),
    ] = ""

    def __post_init__(self) -> None:
        check_fields("faults", self)
        list(self._listed())
        self.listed_attackers()

    @property
    def any(self) -> bool:
        """Whether this plan contains any fault. An attack is not one of them."""
        return bool(self.at) or any(getattr(self, kind) for kind in KINDS)

    @property
    def clients_at(self) -> set[int]:
        """The clients that `at` names."""
        return {client for _, client, _, _ in self._listed()}

    @property
    def last_begin(self) -> int:
        """The last round, counted from 1, in which an entry of `at` begins, or 0 if `at` is empty."""
        return max((first for _, _, first, _ in self._listed()), default=0)

    @property
    def takes_all(self) -> bool:
        """Whether a probability of 1 prevents every upload from counting."""
        return 1.0 in (self.drop, self.late, self.corrupt)

    def listed(self, round: int, client: int) -> set[str]:
        """Return the kinds of fault that `at` lists for a client in a round.

        Args:
            round: Number of the round, counted from 0.
            client: Number of the client, counted from 0.
        """
        return {
            kind for kind, who, first, last in self._listed() if who == client and first <= round + 1 <= last
        }

    def fault_of(self, round: int, client: int, dice: tuple[float, float, float, float]) -> ParticipantFault:
        """Decide what happens to a drawn client in a round.

        Args:
            round: Number of the round, counted from 0.
            client: Number of the client, counted from 0.
            dice: Four random numbers in [0, 1), one for each of `KINDS` in that order.
        """
        struck = {kind for kind, number in zip(KINDS, dice, strict=True) if number < getattr(self, kind)}
        struck |= self.listed(round, client)
        outcome: FaultOutcome = (
            "dropped"
            if "drop" in struck
            else "late"
            if "late" in struck
            else "refused"
            if "corrupt" in struck
            else "counted"
        )
        return ParticipantFault(outcome, self.straggle_share if "straggle" in struck else 1.0)

    def _listed(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield every entry of `at` as (kind, client, first round, last round)."""
        for entry in filter(None, (part.strip() for part in self.at.split(","))):
            match = re.fullmatch(r"([a-z]+) +(\d+)@(\d+)(?:-(\d+))?", entry)
            if match is None:
                raise UsageError(
                    f"faults.at: {entry!r} is not KIND CLIENT@ROUND or KIND CLIENT@FROM-TO, as in 'drop 3@2'"
                )
            kind, client, first, last = match.groups()
            check_choice("faults.at", kind, KINDS)
            if not 1 <= int(first) <= int(last or first):
                raise UsageError(
                    f"faults.at: {entry!r}: rounds are counted from 1, the first before the last"
                )
            yield kind, int(client), int(first), int(last or first)
