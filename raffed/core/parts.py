"""The parts of a network: which parameters stay with the client, and which ones a training phase changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from raffed.config.validation import Range, check_fields
from raffed.core.params import Params
from raffed.errors import UsageError, check_choice

Part = Literal["all", "body", "head", "base", "top", "norm", "none"]
PARTS: tuple[str, ...] = get_args(Part)
TOP = ("head.", "body.projection.")
Epochs = Annotated[float | None, Range(0.0, 1e4)]
Momentum = Annotated[float | None, Range(0.0, 0.9999)]
WeightDecay = Annotated[float | None, Range(0.0, 10.0)]


def in_part(name: str, part: Part, norms: Collection[str] | None = None) -> bool:
    """Return whether a parameter belongs to a part of the network.

    Args:
        name: Name of the parameter, which starts with `body.` or `head.`.
        part: "all", "body", "head", "top" (the head and the projection before it, if there is one), "base"
            (everything below the top, which is the whole body if there is no projection), "norm" (scales and
            offsets of BatchNorm), or "none".
        norms: Names of the parameters of BatchNorm (`Spec.norms`), which only the part "norm" needs. A name
            does not show which type of layer it belongs to.

    Raises:
        ValueError: The part is "norm", and `norms` was not given.
        UnknownNameError: There is no such part.
    """
    if part == "norm":
        if norms is None:
            raise ValueError(
                'in_part: the part "norm" needs the names of BatchNorm\'s parameters (Spec.norms)'
            )
        return name in norms
    if part in ("base", "top"):
        return name.startswith(TOP) == (part == "top")
    if part in ("all", "none"):
        return part == "all"
    return name.startswith(f"{check_choice('part of a network', part, PARTS)}.")


@dataclass(frozen=True)
class ParameterSplit:
    """Which parameters are personal, and what happens to BatchNorm's running statistics.

    Integer counters are never sent. `shared(w)` returns the parameters that are sent, and `own(w)` returns
    those that stay. Both need the names of BatchNorm's parameters (`Spec.norms`) if the part is "norm".

    Attributes:
        personal: The part of the network that stays in the client state. Default "none": everything is
            shared.
        buffers: "average" (the default) means that BatchNorm's statistics are sent and averaged like the
            weights. "local" means that the client keeps them.

    Raises:
        UnknownNameError: There is no such part of a network, or `buffers` is another word.
    """

    personal: Part = "none"
    buffers: Literal["average", "local"] = "average"

    def __post_init__(self) -> None:
        check_fields("ParameterSplit", self)

    def shared(self, w: Params, norms: Collection[str] | None = None) -> Params:
        if self.personal == "none":
            return w
        return w.only(n for n in w.names if not in_part(n, self.personal, norms))

    def own(self, w: Params, norms: Collection[str] | None = None) -> Params:
        if self.personal == "none":
            return Params({})
        return w.only(n for n in w.names if in_part(n, self.personal, norms))


SHARE_ALL = ParameterSplit()


def _check_trained(owner: str, part: Part) -> None:
    if part == "none":
        raise UsageError(f"{owner}.part = 'none' trains nothing; leave the {owner} out, or name a part")


@dataclass(frozen=True)
class Pass:
    """One pass of shared training: what is trained, for how long, and with which settings of SGD.

    Attributes:
        part: The part of the network that is trained. Default "all".
        epochs: Passes over the client's samples. Default None: as the run says.
        momentum: Momentum of SGD, which then is the optimiser. Default None: as the run says.
        weight_decay: Weight decay. Default None: as the run says.
        cross_entropy_only: Whether the objective is the cross-entropy alone, without terms and without the
            addition of the personal ingredient. Default False.
        keep_singleton_batch: Whether a last batch of one sample is trained on. If not, a network with
            BatchNorm leaves it out of its epochs, unless it is a client's only batch. Default True.
        lr_scale: Factor of the round's learning rate. Default 1.

    Raises:
        UsageError: There is no such part of a network, or a number is outside its range.
    """

    part: Part = "all"
    epochs: Epochs = None
    momentum: Momentum = None
    weight_decay: WeightDecay = None
    cross_entropy_only: bool = False
    keep_singleton_batch: bool = True
    lr_scale: Annotated[float, Range(0.0, 1e3)] = 1.0

    def __post_init__(self) -> None:
        check_fields("Pass", self)
        _check_trained("Pass", self.part)


@dataclass(frozen=True)
class Budget:
    """How long private training lasts, what it trains, and which settings of SGD it changes.

    Attributes:
        steps: Number of steps. It is not used if `epochs` is given.
        lr_scale: Factor of the round's learning rate. Default 1.
        momentum: Momentum of SGD, which then is the optimiser. Default None: as the run says.
        epochs: Passes over the client's samples. Default None: `steps` counts.
        lr: Learning rate in place of the round's rate times `lr_scale`. Default None.
        weight_decay: Weight decay. Default None: as the run says.
        part: The part of the network that is trained. Default "all".
        shared_batches: Whether the batches, dropout and augmentation of the first shared pass are used again,
            instead of own random streams. Default False.

    Raises:
        UsageError: There is no such part of a network, or a number is outside its range.
    """

    steps: Annotated[int, Range(0)] = 0
    lr_scale: Annotated[float, Range(0.0, 1e3)] = 1.0
    momentum: Momentum = None
    epochs: Epochs = None
    lr: Annotated[float | None, Range(0.0, 1e3)] = None
    weight_decay: WeightDecay = None
    part: Part = "all"
    shared_batches: bool = False

    def __post_init__(self) -> None:
        check_fields("Budget", self)
        _check_trained("Budget", self.part)
