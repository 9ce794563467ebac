"""FedAS (Yang et al. 2024): a shared body that each client first aligns with its own features."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Assign, Gradient, Ingredient, Mean, Method, ParameterSplit, Params, ServerRule, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.aggregation.exact_sums import PointSum, plain_sum
from raffed.core.context import Context, Forward, ServerContext
from raffed.core.ingredients import Opening
from raffed.core.losses import one_hot
from raffed.core.messages import Private, Wire
from raffed.core.parts import in_part
from raffed.methods.common import class_sums

Weights = Literal["fisher", "clients"]


class OwnMeans(Private):
    """The class means of the features of the client's last model: mean [C, D], and which classes it holds:
    held [C].
    """

    mean: Tensor
    held: Tensor


class Alignment(Opening[State, OwnMeans]):
    """w ← w − η_a ∇ Σ_c ‖z − m_c‖²/(n_c D) over the classes of each batch, on the downloaded body.

    m_c is the mean feature of class c under the client's last model, over its training set and in evaluation
    mode. Before the first participation that is the initial model. The head is not moved. Plain gradient
    descent, whatever the run's optimiser is.

    Attributes:
        passes: Passes over the client's samples.
        lr: η_a, the rate.
    """

    passes: float
    lr: float

    def client_init(self, k: Context) -> OwnMeans:
        return own_means(k, k.initial)

    def epochs(self, k: Context[OwnMeans]) -> float:
        return self.passes

    def loss(self, f: Forward, k: Context[OwnMeans]) -> Tensor:
        return alignment_loss(f.z, f.y, k.mine.mean, k.mine.held)

    def step(self, carried: State, gradient: Gradient, k: Context[OwnMeans]) -> State:
        slope, b = gradient(carried, 0)
        moved = {n: t - self.lr * slope[n] if in_part(n, "body") else t for n, t in carried.w.tensors.items()}
        return State(Params(moved), b)

    def end(self, carried: State) -> State:
        return State(carried.w.clone(), carried.b.clone())

    def finish(self, k: Context[OwnMeans]) -> tuple[OwnMeans, None]:
        return own_means(k, k.state), None


def own_means(k: Context, state: State) -> OwnMeans:
    """Return the class means of a model's features on the client's training set."""
    sums = class_sums(k, state)
    return OwnMeans(sums.total / sums.count.clamp(min=1)[:, None], sums.count > 0)


def alignment_loss(z: Tensor, y: Tensor, mean: Tensor, held: Tensor) -> Tensor:
    """Return Σ over the classes c of the batch of the mean of (z − m_c)² over its samples and features [].

    Args:
        z: Features [B, D].
        y: Labels [B].
        mean: Class means [C, D].
        held: Which classes have one [C] bool.
    """
    label = one_hot(y, mean.shape[0]).to(z.dtype) * held.to(z.dtype)
    gap = (z - label @ mean.to(z.dtype)).square().mean(-1)
    each = (label * gap[:, None]).sum(0) / label.sum(0).clamp(min=1)
    return each.sum()


class Fisher(Wire):
    """trace []: Σ over the client's batches of ‖∇ NLL of the batch‖²."""

    trace: Tensor


class FisherTrace(Ingredient[None, Fisher, None]):
    """tr F_k = Σ_batches ‖∇ mean −log σ(a)_y‖² of the trained model, over body and head, in evaluation mode.

    The batches are the run's, in the order of the data, so their size is a part of the definition.
    """

    def finish(self, k: Context) -> tuple[None, Fisher]:
        assert k.gradients is not None
        total = torch.zeros((), dtype=torch.float64, device=k.class_counts.device)
        for slope in k.gradients(k.state, F.cross_entropy):
            total += slope.sq_norm().to(torch.float64)
        return None, Fisher(total.to(torch.float32))


class FisherMean(ServerRule[None]):
    """w^{t+1} = Σ_k (tr F_k / Σ_j tr F_j) w_k; equal weights if all traces are 0."""

    each: ClassVar[bool] = True

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        uploads = k.uploads
        told = [upload.slots["message"] for upload in uploads]
        shares = fisher_shares([float(message.trace) for message in told if isinstance(message, Fisher)])
        total = PointSum()
        total.add_all([model.w for model in uploads], shares, ["weights by Fisher information"] * len(shares))
        return None, total.value(mean)


def fisher_shares(traces: list[float]) -> list[float]:
    """Return the traces divided by their sum, or equal shares if all are 0."""
    total = plain_sum(traces)
    return [trace / total for trace in traces] if total > 0 else [1.0 / len(traces)] * len(traces)


@checked
def fedas(
    align_epochs: Annotated[float, Range(0.0, 1e4), Doc("Passes of the alignment; 0 leaves it out.")] = 1.0,
    align_lr: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("η_a, learning rate of the alignment; 0 leaves it out.")
    ] = 0.01,
    weights: Annotated[
        Weights, Doc("Weights of the clients: by their Fisher information, or equal (clients).")
    ] = "fisher",
) -> Method:
    """FedAS: a shared body under a private head; the body is aligned with the client's own features first.

    Equation:
        After the download `align_epochs` passes on Σ_c MSE(z, m_c), where m_c are the class means of the
        client's last model (`Alignment`). Then body and head are trained together. The server's mean of the
        bodies has the weights tr F_k / Σ_j tr F_j (`FisherTrace`). Without both it is FedPer with equal
        weights.

    Source:
        Yang, Huang and Ye, CVPR 2024. The authors' script has rate 0.01 and batches of 16 for the alignment,
        five epochs, 20 clients, and 10 % of them in a round.

    Departures: the released code aligns one global model that all clients hand on to each other, so that the
    alignments add up. Here each client aligns a copy of its own, as PFLlib does. The alignment has the
    batches of the run (16 there). Means and traces are over all samples (the released code leaves out a last
    short batch). BatchNorm's statistics are averaged, and in the released code they stay with their client.
    """
    opening = Alignment(align_epochs, align_lr) if align_epochs and align_lr else None
    by_fisher = weights == "fisher"
    return Method(
        "FedAS",
        opening=opening,
        message=FisherTrace() if by_fisher else None,
        split=ParameterSplit("head"),
        mean=Mean("clients", fixed=by_fisher),
        server=FisherMean() if by_fisher else Assign(),
    )
