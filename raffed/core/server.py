"""How uploads are averaged, how the server makes its next model, and servers that answer each client.

A server that answers each client keeps the models from which a client's download is mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Generic, Literal

import torch
from torch import Tensor

from raffed.config.aggregation import MeanRule, Median
from raffed.config.validation import Range, check_fields
from raffed.core.aggregation.exact_sums import PointSum
from raffed.core.ingredients.base import fault, watch
from raffed.core.messages import Addressed, Broadcast, ServerMemory, Summable, Wire
from raffed.core.params import Params, Record
from raffed.core.parts import Part, in_part
from raffed.own.user_code import check_slot, described

if TYPE_CHECKING:
    from raffed.core.context import ServerContext, Spec


class Reweighting(Record):
    """A change of the weights of the mean by what each client reports about its class counts.

    Reports do not depend on training, so the server knows all weights before the round. Therefore uploads are
    added up as usual, masked or not, and BatchNorm's statistics get the same weights as the parameters.
    """

    _compare = True

    def __init_subclass__(cls, stored: str = "") -> None:
        super().__init_subclass__(stored)
        watch(cls)

    def report(self, class_counts: Tensor) -> Tensor:
        """Return the numbers [m] that a client reports, with each upload.

        Args:
            class_counts: The client's training samples of each class [C], int64.
        """
        raise NotImplementedError

    def weights(self, usual: Sequence[float], reports: Sequence[Tensor]) -> list[float]:
        """Return the weights p_i. They lie in [0, 1] and add up to 1.

        Args:
            usual: The weights without this change, by samples or uniform, for each participant.
            reports: What each of them reports.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Mean:
    """The weights p_i with which uploads are averaged.

    Attributes:
        by: "samples" for p_i = n_i / Σ n, or "clients" for p_i = 1 / |S|.
        fixed: Whether the method relies on these weights elsewhere too, so that a run cannot choose others.
            Default False.
        rule: A robust rule in place of the mean, or None. The run chooses it.
        reweighting: A change of these weights by the clients' class counts, or None.

    Raises:
        UsageError: `by` is another word, or a field has another type.
    """

    by: Literal["samples", "clients"] = "samples"
    fixed: bool = False
    rule: MeanRule | None = None
    reweighting: Reweighting | None = None

    def __post_init__(self) -> None:
        check_fields("Mean", self)
        check_slot("Mean", "rule", self.rule, Median, optional=True)
        check_slot("Mean", "reweighting", self.reweighting, Reweighting, optional=True)

    def weights(
        self, samples: Sequence[int], class_counts: Callable[[], Sequence[Tensor]] = tuple
    ) -> list[float]:
        """Return the weights p_i, which add up to 1, in float64.

        Args:
            samples: Training samples n_i of each participant of the round.
            class_counts: Function that returns the training samples of each class [C], int64, of each
                participant. It is called only if the weights depend on them.
        """
        usual = self._usual(samples)
        if self.reweighting is None:
            return usual
        weights = self.reweighting.weights(usual, [self.reweighting.report(row) for row in class_counts()])
        in_range = len(weights) == len(usual) and all(0.0 <= weight <= 1.0 for weight in weights)
        if not in_range or abs(sum(weights) - 1.0) >= 1e-6:
            raise fault(
                self.reweighting,
                "weights",
                f"must return {len(usual)} numbers from 0 to 1 that add up to 1",
            )
        return weights

    def _usual(self, samples: Sequence[int]) -> list[float]:
        if self.by == "clients":
            return [1.0 / len(samples)] * len(samples)
        total = sum(samples)
        return [n / total for n in samples]


def mean_of(preset: str) -> Mean:
    """Return the weights of the mean for a preset.

    "original" gives FedAvg's p_k = n_k / Σ n. "authors" gives uniform weights, as in all baselines of MAP's
    released code (docs/papers/map.md §7 no. 3).
    """
    return Mean(by="clients" if preset == "authors" else "samples")


@dataclass(frozen=True)
class ServerData:
    """The data that a server's rule needs.

    Attributes:
        images: Largest number of images without labels, drawn from the global test set. Default 0.
        labelled: Number of labelled images of every class. They are removed from the training pool before it
            is split, and only in the runs of this rule's method. Default 0.

    Raises:
        UsageError: A number is below 0.
    """

    images: Annotated[int, Range(0)] = 0
    labelled: Annotated[int, Range(0)] = 0

    def __post_init__(self) -> None:
        check_fields("ServerData", self)


class ServerRule(Record, Generic[ServerMemory]):
    """How the server makes its next model from the mean of the uploads.

    A subclass implements `step(own, w, mean, k)`. It gets the rule's memory `own`, the server's weights `w` =
    w^t, the mean of the uploaded weights and the server's context `k`. It returns (memory, w^{t+1}).
    `init(w)` returns the memory before the first round, made from the initial weights, or None.

    The type parameter is the rule's memory: a `Private` record, or None for a rule without one. It may be
    left out.

    Attributes:
        each: Whether the rule needs every single upload and not only their mean. If so, it finds them in
            `k.received["server"].each`.
        on_device: Whether the rule's step is made where clients train, which is a GPU in a run on GPUs.
            Rules that train ask for it. All tensors that `step` is given then lie on that device, and it has
            to make new ones there (`device=w.flat.device`). Otherwise all of them lie on the CPU.
        acts_last: Whether the model that is scored is finished by the run's last round only, as in CCVR.
        has_global: Whether the weights w^{t+1} are a model. They are not if each client gets another one, of
            which they are only the mean.
    """

    _compare = True

    each: ClassVar[bool] = False  # it needs every upload, not only their mean
    on_device: ClassVar[bool] = False  # its step is made where clients train
    adaptive: ClassVar[bool] = False  # its steps are divided by the size of the mean updates
    acts_last: ClassVar[bool] = False  # what it scores before the last round is not its model yet
    has_global: ClassVar[bool] = True  # w^{t+1} is a model, and not only the mean of several

    def __init_subclass__(cls, stored: str = "") -> None:
        super().__init_subclass__(stored)
        watch(cls)

    def required_data(self) -> ServerData:
        """Return the data that this rule needs. It finds them in `k.public` and `k.labelled`."""
        return ServerData()

    def init(self, w: Params) -> ServerMemory | None:
        return None

    def table_size(self, w: Params, spec: Spec) -> int:
        """Return how many numbers the table may hold from which this rule answers each client (`Addressed`).

        It is asked before a run begins, which is refused if they do not fit into the memory. Default 0.

        Args:
            w: The initial weights, also those that stay with the clients.
            spec: Sizes of the model and of the federation.

        Raises:
            UsageError: The rule cannot answer so many clients.
        """
        return 0

    def step(
        self, own: ServerMemory, w: Params, mean: Params, k: ServerContext
    ) -> tuple[ServerMemory | None, Params]:
        raise NotImplementedError

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        """Return BatchNorm's statistics for the next round.

        By default they are the mean of the uploaded ones.

        Args:
            b: The statistics of this round.
            mean: The mean of the uploaded statistics.
            k: What the server knows.
        """
        return mean

    def extra_broadcast(self, own: ServerMemory) -> dict[str, Wire]:
        """Return messages to broadcast in addition, by the slot of the ingredient that gets them.

        For example, CReFF broadcasts a retrained head in this way. An `Addressed` message may have any other
        name than "server", so that a rule's memory need not be sent.

        Args:
            own: The rule's memory after the round.
        """
        return {}

    def evaluation_weights(self, own: ServerMemory, w: Params) -> Params:
        """Return the weights that are evaluated as the global model.

        By default they are the weights that are broadcast. FedDyn evaluates others.

        Args:
            own: The rule's memory.
            w: The weights that are broadcast.
        """
        return w

    def report(self, own: ServerMemory) -> Mapping[str, float]:
        """Return numbers to record after each round, as `Ingredient.report` does.

        Args:
            own: The rule's memory after the round.
        """
        return {}


class Assign(ServerRule[None]):
    """The mean of the uploads becomes the next model: w^{t+1} = mean."""

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        return None, mean


class ServerSGD(ServerRule[None]):
    """A step from w^t towards the mean: w^{t+1} = (1 − η_g) w^t + η_g · mean.

    With η_g = 1 it equals `Assign` bit for bit.

    Attributes:
        lr: Server learning rate η_g.
        all_state: Whether BatchNorm's statistics take the same step, as in MAP's released code. Default
            False: they become their mean.

    Raises:
        UsageError: The learning rate is not a number from 0 to 1000.
    """

    lr: Annotated[float, Range(0.0, 1e3)]
    all_state: bool = False

    def __post_init__(self) -> None:
        check_fields("ServerSGD", self)

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        return None, w * (1.0 - self.lr) + mean * self.lr

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return b * (1.0 - self.lr) + mean * self.lr if self.all_state else mean


def unaddressed(b: Broadcast) -> Broadcast:
    """Return what is sent to all clients alike; `b` itself if nothing in it is addressed."""
    same = {slot: message for slot, message in b.slots.items() if not isinstance(message, Addressed)}
    return b if len(same) == len(b.slots) else b.replace(slots=same)


def replied(b: Broadcast, client: int) -> Broadcast:
    """Return what one client downloads; `b` itself if nothing in it is addressed.

    Raises:
        UserCodeError: A reply is no broadcast, or has other weights or statistics than it was given.
    """
    sent = alike = unaddressed(b)
    for table in [message for message in b.slots.values() if isinstance(message, Addressed)]:
        sent = table.reply(sent, client)
        if not isinstance(sent, Broadcast) or unaddressed(sent) is not sent:
            raise fault(
                table,
                "reply",
                f"returned {described(sent)}; it must return the Broadcast that it was given, with other "
                "weights or messages, and without an Addressed message",
            )
        if (sent.w.layout, sent.b.layout) != (alike.w.layout, alike.b.layout):
            raise fault(
                table,
                "reply",
                f"returned weights or statistics of other names or shapes, {sent.w} and {sent.b}; it must "
                f"return {alike.w} and {alike.b}",
            )
    return sent


class Mixtures(Addressed):
    """Client i downloads Σ_r shares[i, r] · rows[r] in place of a part of the shared weights.

    The sum is exact and rounded once (docs/design.md §3). A client that is not `known` downloads what all
    would.

    Attributes:
        rows: Models as flat buffers [R, P], P = `Params.layout.size` of that part of the shared weights.
        shares: Shares [N, R], float64. They are at least 0, and add up to 1 for every known client.
        known: Which of the N clients get a mixture [N], bool.
        statistics: BatchNorm's statistics of the same models [R, Q], mixed alike, or None to leave these as
            they are.
        part: Part of the network that is mixed. Default "all".

    Raises:
        ValueError: The shares of a known client are no shares.
    """

    rows: Tensor
    shares: Tensor
    known: Tensor
    statistics: Tensor | None = None
    part: Part = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = (self.shares.sum(1) - 1.0).abs() <= 1e-6
        if len(wrong := ((self.shares < 0.0).any(1) | (self.known & ~whole)).nonzero()):
            raise ValueError(
                f"Mixtures.shares of client {int(wrong[0])} must be at least 0 and add up to 1, but are "
                f"{self.shares[int(wrong[0])].tolist()[:8]}"
            )

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        if not (client < len(self.known) and bool(self.known[client])):
            return b
        mixed = b.w.only(name for name in b.w.names if in_part(name, self.part))
        b = b.replace(w=b.w.joined(self._mixed(self.rows, client, mixed), b.w.names))
        return b if self.statistics is None else b.replace(b=self._mixed(self.statistics, client, b.b))

    def _mixed(self, rows: Tensor, client: int, like: Params) -> Params:
        used = self.shares[client].nonzero().flatten().tolist()
        points = [Params.from_flat(like.layout, rows[row]) for row in used]
        return mixture(points, self.shares[client][used].tolist(), like)


class ListedModels(Summable):
    """Models of others that a client downloads. Only those that exist are counted as sent.

    Attributes:
        number: Number of the client of each model plus 1, and 0 where there is none [M], int64.
        w: Their weights as vectors [M, P].
        b: Their BatchNorm statistics [M, Q].
    """

    rows = "number"

    number: Tensor
    w: Tensor
    b: Tensor


class Lists(Addressed):
    """Client i downloads whole models of others, which it finds in the slot "opening" (`ListedModels`).

    Attributes:
        rows: The models of all clients as vectors [N, P], in an order that the clients know.
        statistics: BatchNorm's statistics of the same models [N, Q].
        chosen: Clients whose models each client gets [N, M], int64. −1 is nobody.
    """

    rows: Tensor
    statistics: Tensor
    chosen: Tensor

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        nobody = self.chosen.new_full(self.chosen.shape[1:], -1)
        chosen = self.chosen[client] if client < len(self.chosen) else nobody
        exists = (chosen >= 0).to(self.rows.dtype)[:, None]
        w, statistics = (table[chosen.clamp(min=0)] * exists for table in (self.rows, self.statistics))
        return b.replace(slots={**b.slots, "opening": ListedModels(chosen + 1, w, statistics)})


def mixture(points: Sequence[Params], shares: Sequence[float], like: Params) -> Params:
    """Return Σ shares · points as an exact sum that is rounded once, where `like` is and of its type.

    Args:
        points: Points with the names of `like`, on the CPU.
        shares: Numbers from 0 to 1 that add up to at most 1.
        like: A point.
    """
    total = PointSum()
    total.add_all(points, shares, [f"row {number} of a mixture" for number in range(len(points))])
    return Params.from_flat(like.layout, total.value(like).flat.to(like.device, like.dtype))


def with_rows(before: Tensor | None, everyone: int, clients: Sequence[int], rows: Sequence[Tensor]) -> Tensor:
    """Return a table [everyone, ...] with new rows for some clients. The others keep theirs, at first 0.

    Args:
        before: The table before, or None.
        everyone: Number of all clients (`Spec.everyone`).
        clients: Numbers of the clients with new rows.
        rows: Their rows, in the same order.
    """
    table = rows[0].new_zeros(everyone, *rows[0].shape) if before is None else before.clone()
    table[list(clients)] = torch.stack(list(rows)).to(table.dtype)
    return table
