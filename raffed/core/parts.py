"""The parts of a network: which of its parameters stay with the client, and which of them a stretch of
training moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raffed.core.params import Params

Part = Literal["all", "body", "head", "base", "top", "none"]
TOP = ("head.", "body.projection.")


def in_part(name: str, part: Part) -> bool:
    """Whether a parameter belongs to a part of the network; names start with `body.` or `head.`.

    top: the head and the projection before it, if there is one; base: all below, so the body if there is
    none.
    """
    if part in ("base", "top"):
        return name.startswith(TOP) == (part == "top")
    return part == "all" or (part != "none" and name.startswith(f"{part}."))


@dataclass(frozen=True)
class ParameterSplit:
    """Which parameters are personal (stay in the vault) and what becomes of BatchNorm's running statistics.

    `buffers`: "average": sent and averaged like the weights; "local": kept by the client. Integer counters
    are never sent.
    """

    personal: Part = "none"
    buffers: Literal["average", "local"] = "average"

    def shared(self, w: Params) -> Params:
        return w if self.personal == "none" else w.only(n for n in w.names if not in_part(n, self.personal))

    def own(self, w: Params) -> Params:
        return (
            Params({}) if self.personal == "none" else w.only(n for n in w.names if in_part(n, self.personal))
        )


SHARE_ALL = ParameterSplit()


@dataclass(frozen=True)
class Pass:
    """One stretch of local training: what moves, for how long, with which solver (None: as the run says).
    cross_entropy_only: by the cross-entropy alone, without terms and without the personal ingredient's
    addition. keep_singleton_batch: whether a last batch of one sample is trained on; if not, a network with
    BatchNorm leaves it out of its epochs, unless it is a client's only one.
    """

    part: Part = "all"
    epochs: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    cross_entropy_only: bool = False
    keep_singleton_batch: bool = True


@dataclass(frozen=True)
class Budget:
    """Private training after the shared one: how long, what moves, and what it changes in the run's solver
    (None: nothing).

        steps, or epochs over the client's data if given. lr: a rate of its own, not lr_scale times the
        round's. shared_batches: the batches (and dropout, augmentation) of the first shared pass instead of
        its own.
    """

    steps: int = 0
    lr_scale: float = 1.0
    momentum: float | None = None
    epochs: float | None = None
    lr: float | None = None
    weight_decay: float | None = None
    part: Part = "all"
    shared_batches: bool = False
