"""Memories several papers share: class centres, as functions and Wires."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.losses import one_hot
from raffed.core.messages import Private, Summable, Wire
from raffed.core.params import Params, State

NEVER = -1e30  # a logit that no other falls below


class ClassSums(Summable):
    """What a client reports about its classes: Σ of the features total [C, D] and the counts [C] int64
    (visible to the server).
    """

    fraction_bits = 24  # sums over thousands of samples: ±2^38 in steps of 2^-24

    total: Tensor
    count: Tensor


class HeldSums(ClassSums):
    """The same. A client sends a row and a number (count or id) for each class that it holds."""

    rows = "count"


class Prototypes(Wire):
    """The server's class centres: mean [C, D]; known [C] bool, whether any client ever sent the class."""

    mean: Tensor
    known: Tensor

    @staticmethod
    def empty(classes: int, dim: int) -> Prototypes:
        return Prototypes(torch.zeros(classes, dim), torch.zeros(classes, dtype=torch.bool))

    def updated(self, sums: ClassSums) -> Prototypes:
        """The sample-weighted mean where this round brought samples; the last value kept where not."""
        fresh = sums.count > 0
        mean = sums.total / sums.count.clamp(min=1)[:, None]
        return Prototypes(torch.where(fresh[:, None], mean, self.mean), self.known | fresh)


def class_sums(k: Context, state: State) -> ClassSums:
    """Features of `state` over all the client's samples, in evaluation mode, without augmentation or
    random numbers.
    """
    total = torch.zeros(
        k.spec.num_classes, k.spec.feature_dim, dtype=torch.float64, device=k.class_counts.device
    )
    for z, y in k.features(state):
        total += one_hot(y, k.spec.num_classes).T.to(torch.float64) @ z.to(torch.float64)
    return ClassSums(total.to(torch.float32), k.class_counts)


class Companion(Private):
    """Parameters that a client trains beside the shared ones and keeps."""

    own: Params


def class_mean_sums(k: Context, weighting: str = "uniform") -> HeldSums:
    """The class means of the trained model, each times a weight, and the weights [C]; sums of both give a
    mean over clients:

    uniform over those that hold the class ("uniform", which reveals no counts), or weighted by the clients'
    sizes ("party_size") or by their class counts ("class_count").
    """
    sums = class_sums(k, k.state)
    held = (sums.count > 0).to(sums.count.dtype)
    weight = {"uniform": held, "party_size": held * sums.count.sum(), "class_count": sums.count}[weighting]
    return HeldSums(sums.total * (weight / sums.count.clamp(min=1))[:, None], weight)


def nearest(z: Tensor, g: Tensor, known: Tensor) -> Tensor:
    """Logits [B, C] = −‖z − g_c‖² of features z [B, D] for prototypes g [C, D]; a class that is not known
    is never chosen.
    """
    gap = (z[:, None, :] - g.masked_fill(~known[:, None], 0.0)[None]).square().sum(-1)
    return (-gap).masked_fill(~known, NEVER)
