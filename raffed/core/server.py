"""How uploads become one point, and what the server makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from raffed.core.messages import Private, Wire
from raffed.core.params import Params
from raffed.core.record import Record
from raffed.errors import by_authors

if TYPE_CHECKING:
    from raffed.core.context import ServerContext


@dataclass(frozen=True)
class Mean:
    """How uploads become one point: p_i = n_i / Σ n ("samples") or 1 / |S| ("clients").

    fixed: the method counts on these weights elsewhere too, so that a run cannot ask for others.
    """

    by: Literal["samples", "clients"] = "samples"
    fixed: bool = False

    def weights(self, samples: Sequence[int]) -> list[float]:
        """p_i in float64 from the integer counts of this round's participants."""
        if self.by == "clients":
            return [1.0 / len(samples)] * len(samples)
        total = sum(samples)
        return [n / total for n in samples]


def mean_of(preset: str) -> Mean:
    """FedAvg's p_k, or uniform means with preset "authors", as in all baselines of MAP's released code
    (docs/papers/map.md §7 no. 3).
    """
    return Mean(by="clients" if by_authors(preset) else "samples")


@dataclass(frozen=True)
class ServerData:
    """What a server's rule wants to have of data.

    images: how many without labels, at most, drawn from the global test set. labelled: how many of every
    class with labels; they leave the training pool before it is split, in the runs of this rule's method
    alone.
    """

    images: int = 0
    labelled: int = 0


class ServerRule(Record):
    """(its own memory, w^t, the mean of the uploads) → (memory, w^{t+1})."""

    _compare = True

    each: ClassVar[bool] = (
        False  # whether it needs every upload and not only their mean: `k.received["server"].each`
    )

    def required_data(self) -> ServerData:
        """The data that this rule asks for: `k.public` and `k.labelled`."""
        return ServerData()

    def init(self, w: Params) -> Private | None:
        return None

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Private | None, Params]:
        raise NotImplementedError

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        """BatchNorm's statistics of round t + 1 from those of round t and the mean of the uploaded ones."""
        return mean

    def extra_broadcast(self, own: Any) -> dict[str, Wire]:
        """Slot → what this rule's memory has the server broadcast to that slot's ingredient (CReFF's
        retrained head).
        """
        return {}

    def evaluation_weights(self, own: Any, w: Params) -> Params:
        """The weights that are evaluated as the global model, where they are not those that are broadcast
        (FedDyn).
        """
        return w


class Assign(ServerRule):
    """w^{t+1} = mean."""

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Private | None, Params]:
        return None, mean


class ServerSGD(ServerRule):
    """w^{t+1} = (1 − η_g) w^t + η_g · mean, the step of rate η_g along mean − w^t; η_g = 1 is Assign, bit for
    bit.

        all_state: BatchNorm's statistics take the same step, as in MAP's released code; otherwise they are
        their mean.
    """

    lr: float
    all_state: bool = False

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Private | None, Params]:
        return None, w * (1.0 - self.lr) + mean * self.lr

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return b * (1.0 - self.lr) + mean * self.lr if self.all_state else mean
