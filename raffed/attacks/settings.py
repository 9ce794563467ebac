"""The attacks of MpFedcon's Fig. 10 and Table 4, as data: who made the upload, and what the
attacker knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from raffed.config.validation import Value
from raffed.errors import UsageError, check_choice, check_range

HEADS = ("sent", "dealt", "random")
PAIRS = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3))  # cl/at; the paper does not list the pairs of its figure
SIZES = (1e-4, 1e-2)


@dataclass(frozen=True)
class Setting:
    """One attack.

    Attributes:
        name: Its name.
        method, args: What the client runs.
        cl: Number of fully connected layers of the client's network.
        at: Number of fully connected layers that the attacker assumes.
        head: How the attacker knows the head. With "sent", the head's weights travel. With "dealt", they are
            those that the server sent before round 0 (a control, and a real attack until they have been
            trained). With "random", the attacker draws them.
        infer: Whether the label comes from the sign rule (iDLG) and is not optimised.
        centre: Whether the representation that MpFedcon sends of the class is matched, instead of the
            gradient.
        model, model_args: The network of the client and of the attacker, by name or reference. Without it:
            the LeNet of the paper, with `cl` and `at` layers.
    """

    name: str
    method: str = "fedavg"
    args: Mapping[str, Value] = field(default_factory=dict)
    cl: int = 1
    at: int = 1
    head: Literal["sent", "dealt", "random"] = "sent"
    infer: bool = False
    centre: bool = False
    model: str = ""
    model_args: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("head", self.head, HEADS)
        for name, value in (("cl", self.cl), ("at", self.at)):
            check_range(name, value, 1, 3)
        if self.head != "random" and self.cl != self.at:
            raise UsageError(
                f"{self.name}: an attacker with the head knows {self.cl} layers, so it cannot have {self.at}"
            )
        if self.model and (self.centre or (self.cl, self.at) != (1, 1)):
            raise UsageError(f"{self.name}: `centre`, `cl` and `at` belong to the paper's LeNet")
        if self.centre and self.cl != 1:
            raise UsageError(
                f"{self.name}: with {self.cl} layers what is sent lies behind the private projection"
            )


ONE_STEP = {"head_epochs": 0.0}  # one gradient at the current weights, as in the paper's attack
FIGURE_10 = (
    Setting("DLG"),
    Setting("iDLG", infer=True),
    Setting("known_head", "mpfedcon", ONE_STEP, head="dealt"),
    Setting("head trained since", "mpfedcon", {"head_epochs": 10.0}, head="dealt"),
    *(Setting(f"MpFedcon {cl}/{at}", "mpfedcon", ONE_STEP, cl, at, "random") for cl, at in PAIRS),
    Setting("centre", "mpfedcon", ONE_STEP, head="random", centre=True),
)


def noise_name(kind: str, size: float, meaning: str) -> str:
    """Return the name of a noise, such as "Gaussian 1e-4 (variance)"."""
    return f"{kind.capitalize()} {size:.0e} ({meaning})".replace("e-0", "e-")


TABLE_4 = tuple(
    Setting(noise_name(kind, size, meaning), "noisygrad", {"kind": kind, "size": size, "meaning": meaning})
    for meaning in ("variance", "scale")
    for kind in ("gaussian", "laplace")
    for size in SIZES
)
