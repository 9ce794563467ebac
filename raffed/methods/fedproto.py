"""FedProto (Tan et al. 2022): clients share class prototypes and no weights."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Context, Forward, Mean, Method, Params, Personal, Received, Spec, State, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import one_hot
from raffed.errors import UsageError
from raffed.methods.common import ClassSums, HeldSums, Prototypes, class_sums, nearest
from raffed.methods.registry import Variant
from raffed.methods.solo import PRIVATE


class PrototypePull(Term[None, ClassSums, Prototypes]):
    """λ · mean_{i: g_{y_i} exists} ‖h_i − g_{y_i}‖²/d, the mean-squared error of the official code.

    Prototypes are class means of the locally trained model over the client's training set (evaluation mode).
    The server's are their sample-weighted means over the participants. A class that none of them holds keeps
    its last prototype. A class that was never seen has none and pulls nothing (no zero vectors, no halving).
    A client sends |C_k|·(d + 1) numbers: sums and counts of its classes.

    `halfway` is MAP's released code. The pull is `class_pull`. Prototypes are means of the features seen
    while training: of every step's batch, in training mode, under the weights of that step. A sample counts
    as often as it was seen. The server goes half of the way to their mean weighted by these counts (0 seen
    once and 10 seen nine times give 9), and all of it at a class's first time.
    """

    lam: float
    halfway: bool = False

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def loss(self, f: Forward, k: Context[None, Prototypes]) -> Tensor:
        pull = class_pull if self.halfway else prototype_pull
        return self.lam * pull(f.z, f.y, k.server.mean, k.server.known)

    def note(self, f: Forward, k: Context) -> Tensor | None:
        return seen_sums(f.z, f.y, k.spec.num_classes) if self.halfway else None

    def finish(self, k: Context) -> tuple[None, ClassSums]:
        if self.halfway:
            assert k.noted is not None
            return None, HeldSums(k.noted[:, :-1].to(torch.float32), k.noted[:, -1].to(torch.int64))
        return None, held_sums(k)

    def server_step(self, s: Prototypes, got: Received[ClassSums], spec: Spec) -> Prototypes:
        if got.sum is None:
            return s
        new = s.updated(got.sum)
        return (
            Prototypes(torch.where(s.known[:, None], (s.mean + new.mean) / 2, new.mean), new.known)
            if self.halfway
            else new
        )


class NearestPrototype(Personal[None, ClassSums, Prototypes]):
    """What `PrototypePull` does, and prediction by the nearest of the server's prototypes."""

    lam: float

    predicts = True

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def loss(self, f: Forward, k: Context[None, Prototypes]) -> Tensor:
        return self.lam * prototype_pull(f.z, f.y, k.server.mean, k.server.known)

    def finish(self, k: Context) -> tuple[None, ClassSums]:
        return None, held_sums(k)

    def server_step(self, s: Prototypes, got: Received[ClassSums], spec: Spec) -> Prototypes:
        return s if got.sum is None else s.updated(got.sum)

    def model(self, k: Context) -> State:
        return k.state

    def predict(self, x: Tensor, k: Context[None, Prototypes]) -> Tensor:
        return by_prototype(x, k)


def by_prototype(x: Tensor, k: Context[None, Prototypes]) -> Tensor:
    """Logits [B, C] of x [B, ...]: −‖z − g_c‖², so that the nearest prototype is the answer.

    Only classes that somebody has sent are candidates. Before there is any, the client's classifier answers.
    """
    logits, z = k.net(k.state, x)
    return torch.where(k.server.known.any(), nearest(z, k.server.mean, k.server.known), logits)


def held_sums(k: Context) -> HeldSums:
    """Sums and counts of the trained model's features in each class of the client's training data."""
    sums = class_sums(k, k.state)
    return HeldSums(sums.total, sums.count)


def prototype_pull(z: Tensor, y: Tensor, g: Tensor, known: Tensor) -> Tensor:
    """Mean over anchors of ‖z − g_y‖²/D for z [B, D], y [B], prototypes g [C, D], known [C] bool; 0
    without an anchor.
    """
    label = one_hot(y, g.shape[0]).to(z.dtype)
    anchor = label @ known.to(z.dtype)  # [B]
    target = label @ g.masked_fill(~known[:, None], 0.0).to(z.dtype)
    return (anchor * (z - target).square().mean(-1)).sum() / anchor.sum().clamp(min=1)


def class_pull(z: Tensor, y: Tensor, g: Tensor, known: Tensor) -> Tensor:
    """Mean over the classes c of the batch that have a prototype of ‖z̄_c − g_c‖², z̄_c [D] the mean of the
    batch's class c; not divided by D. Shapes as `prototype_pull`; 0 where no class counts.
    """
    label = one_hot(y, g.shape[0]).to(z.dtype)
    size = label.sum(0)  # [C]
    mean = label.T @ z / size.clamp(min=1)[:, None]
    counts = known.to(z.dtype) * (size > 0).to(z.dtype)
    gap = (mean - g.masked_fill(~known[:, None], 0.0).to(z.dtype)).square().sum(-1)
    return (counts * gap).sum() / counts.sum().clamp(min=1)


def seen_sums(z: Tensor, y: Tensor, classes: int) -> Tensor:
    """For each class of a batch z [B, D], y [B] the sum of its features, and beside it how many they are:
    [C, D + 1] float64.
    """
    label = one_hot(y, classes).to(torch.float64)
    return torch.cat([label.T @ z.to(torch.float64), label.sum(0)[:, None]], 1)


@checked
def fedproto(
    lam: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ, weight of the pull to the prototypes; 0 is SOLO.")
    ] = 1.0,
    preset: Variant = "original",
    predict_by: Annotated[
        Literal["head", "prototype"],
        Doc(
            "What answers when a client is scored: its own classifier, or the nearest of the server's "
            "prototypes."
        ),
    ] = "head",
) -> Method:
    """FedProto: clients share class prototypes and no weights.

    Equation:
        CE + λ mean ‖h_i − g_{y_i}‖²/d (`PrototypePull`). Every client keeps its whole model, all from the
        same initial one, and is scored with its own classifier, or as `predict_by` says. The server
        holds no model.

    Source:
        Tan et al. 2022. λ = 1 is the official default, 0.1 its value for CIFAR-10. Row FedProto of MAP's
        Table II.

    The preset "authors" is MAP's released code (`PrototypePull`, halfway), which searches λ in 0.1, 0.01 and
    0.001.

    Departure of the preset: for classes that nobody has seen the released code takes zero vectors as
    prototypes, which pull features to 0, and it halves those of classes that are absent in a round. Here the
    former do not exist, and the latter stay.

    With `predict_by = "prototype"`, training and messages stay as they are, and a client is scored by the
    prototype nearest to its feature, as the paper and PFLlib do. After a round these are the prototypes that
    the client had downloaded. In a survey between rounds they are the newest, which is what PFLlib scores
    (metric accuracy_between). PFLlib counts everything as wrong while there is no prototype; here the
    classifier answers then.

    Raises:
        UsageError: `predict_by` is "prototype" with the preset "authors", whose clients answer by their
            classifiers.
    """
    if preset == "authors" and predict_by != "head":
        raise UsageError(
            'fedproto: predict_by = "prototype" is not possible with preset = "authors", whose clients '
            "answer by their classifiers; leave one of the two out"
        )
    if predict_by == "prototype":
        return Method("FedProto", personal=NearestPrototype(lam), split=PRIVATE, mean=Mean(by="clients"))
    term = PrototypePull(lam, preset == "authors")
    return Method("FedProto", terms=(term,), split=PRIVATE, mean=Mean(by="clients"))
