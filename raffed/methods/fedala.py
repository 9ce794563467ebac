"""FedALA (Zhang et al. 2023): before its passes, each client mixes the download with its last model."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Gradient, Method, Params, Private, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.ingredients import Opening
from raffed.core.params import Record

LastModel = Literal["download", "initial"]


class Mixture(Private):
    """What a client keeps: the weights W of the upper tensors, these tensors of its last model, and whether
    there is anything to mix (`trained` []) and it has learned W before (`learned` []).
    """

    weights: Params
    last: Params
    trained: Tensor
    learned: Tensor


class Mixing(Record):
    """W while it is learned, and the model that it gives."""

    weights: Params
    model: State


class AdaptiveAggregation(Opening[Mixing, Mixture]):
    """θ̂ = θ_k + (θ^t − θ_k) ⊙ W for the upper tensors, and θ̂ = θ^t below them.

    θ^t is the download, and θ_k is the client's last model. W begins as ones. Each mini-batch takes the
    gradient of the cross-entropy at θ̂ and moves W ← clip(W − η_W ∇ ⊙ (θ^t − θ_k), 0, 1). No other number
    moves, and W is kept. It is learned on one random contiguous slice of the client's samples: not at all
    where θ_k is θ^t, then for `first_epochs` passes, and later for one pass. At a client's first
    participation θ_k is θ^t or, with `from_initial`, the run's initial model, which is θ^t in round 1 alone.

    Attributes:
        lr: η_W, the learning rate of W.
        share: Fraction of the samples in the slice, which has at least two of them.
        tensors: Number of the upper tensors. 0: all.
        first_epochs: Passes when W is learned for the first time.
        from_initial: Whether the last model of a client that comes for the first time is the initial one.
    """

    lr: float
    share: float
    tensors: int
    first_epochs: float
    from_initial: bool = False

    def upper(self, w: Params) -> Params:
        """Return the tensors that are mixed."""
        return w.only(self.slopes(w.names))

    def slopes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names[-self.tensors :]

    def client_init(self, k: Context) -> Mixture:
        top = self.upper(k.initial.w if self.from_initial else k.w0)
        ones = Params({name: torch.ones_like(t) for name, t in top.tensors.items()}).clone()
        no = torch.zeros((), dtype=torch.bool, device=k.class_counts.device)
        return Mixture(ones, top, no | (self.from_initial and k.round > 0), no)

    def epochs(self, k: Context[Mixture]) -> float:
        if not bool(k.mine.trained):
            return 0.0
        return 1.0 if bool(k.mine.learned) else self.first_epochs

    def samples(self, n: int, generator: torch.Generator) -> Tensor:
        size = max(int(self.share * n), min(2, n))  # BatchNorm cannot normalise one sample
        begin = int(torch.randint(n - size + 1, (), generator=generator))
        return torch.arange(begin, begin + size)

    def begin(self, k: Context[Mixture]) -> Mixing:
        return Mixing(k.mine.weights, self.mixed(k.mine.weights, k))

    def mixed(self, weights: Params, k: Context[Mixture]) -> State:
        """Return the model that W gives. Where W is 1 it is the download, bit for bit."""
        last = k.mine.last
        new = {n: torch.lerp(last[n], k.w0[n], weight) for n, weight in weights.tensors.items()}
        return State(Params({**k.w0.tensors, **new}), k.start.b)

    def step(self, carried: Mixing, gradient: Gradient, k: Context[Mixture]) -> Mixing:
        slope, _ = gradient(carried.model, 0)
        weights = Params(
            {
                n: (weight - self.lr * (slope[n] * (k.w0[n] - k.mine.last[n]))).clamp(0.0, 1.0)
                for n, weight in carried.weights.tensors.items()
            }
        )
        return Mixing(weights, self.mixed(weights, k))

    def end(self, carried: Mixing) -> State:
        return State(carried.model.w.clone(), carried.model.b)

    def finish(self, k: Context[Mixture]) -> tuple[Mixture, None]:
        assert isinstance(k.carried, Mixing)
        yes = torch.ones_like(k.mine.trained)
        return Mixture(k.carried.weights.clone(), self.upper(k.w).clone(), yes, k.mine.trained), None


@checked
def fedala(
    eta: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("η_W, learning rate of the weights; 0 is FedAvg.")
    ] = 1.0,
    share: Annotated[
        float, Range(0.0, 1.0, open_low=True), Doc("Share of the samples that W is learned on, at least two.")
    ] = 0.8,
    tensors: Annotated[
        int, Range(0), Doc("How many of the last tensors are mixed (2: the output layer); 0 is all.")
    ] = 2,
    first_epochs: Annotated[
        float, Range(0.0, 1e4), Doc("Passes in which W is learned for the first time; later it is one.")
    ] = 20.0,
    first_model: Annotated[
        LastModel,
        Doc(
            "What counts as the last model of a client that comes for the first time: the download, so that "
            "nothing is mixed, or the run's initial model (initial), as in the released code."
        ),
    ] = "download",
) -> Method:
    """FedALA: before its passes, each client mixes the download with its last model, weight by weight.

    Equation:
        θ̂ = θ_k + (θ^t − θ_k) ⊙ W for the last `tensors` tensors, with W ← clip(W − η_W ∇ ⊙ (θ^t − θ_k), 0,
        1) (`AdaptiveAggregation`). Then local training from θ̂, and the server is FedAvg's. A client keeps W
        and the last tensors of its model.

    Source:
        Zhang, Hua, Wang, Song, Xue, Ma and Guan, AAAI 2023 (arXiv 2212.01197); TsingZ0/FedALA,
        whose defaults are those here.

    The authors' runs: rate 0.005, batches of 10 in the order of the data, without the short last one of an
    epoch (`--drop-last`), and one epoch a round. All 20 clients take part in every round.

    Departures: a client that comes for the first time after round 1 mixes nothing; in the released code it
    mixes the download with the initial model (`first_model = "initial"`). That code learns W for the first
    time until the standard deviation of the last ten losses is below 0.1, which has no bound; here it is
    `first_epochs` passes. It also lets all clients learn W in every round, to score them, and the mixture
    then is a client's last model even if the client does not train; here W and the last model are those of
    the client's last participation, and a survey of all clients (`--survey`) learns W for the scores and
    keeps nothing. The slice has at least two samples where the client has, because BatchNorm cannot normalise
    one, and its batches are shuffled. BatchNorm's statistics are averaged, and in the released
    code they stay with their client.
    """
    opening = (
        AdaptiveAggregation(eta, share, tensors, first_epochs, first_model == "initial") if eta else None
    )
    return Method("FedALA", opening=opening)
