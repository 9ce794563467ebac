"""Pieces that several methods share."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from raffed import Head, Params, Pass, Personal, Private, ServerRule, State, Summable, Wire
from raffed.core.context import Context, Forward, ServerContext
from raffed.core.losses import one_hot
from raffed.core.parts import in_part

# Logits with the log of the client's class prior: the balanced softmax, which several methods train by.


MissingClass = Literal["mask", "eps", "one"]
EPS = 1e-9  # added to the prior by "eps"; log 1e-9 = −20.72


class BalancedSoftmax(Head):
    """z + log n_k^γ in training only, with n_k the client's class counts.

    Constants cancel in a softmax, so counts and shares n_k/Σn are the same. `missing` says what a class
    without samples gets. "mask": log 0 = −∞, so it has probability 0 and no gradient. "eps": γ log(n_c/Σn +
    1e-9), hardly any gradient. "one": a count of 1, so it is pushed down as a class with one sample is.

    If `multiplicative`, the logits are (4·n_c/Σn)^γ z_c, as in MAP's released code, which keeps the 4 for
    every C. That is not a balanced softmax: a missing class has logit 0.
    """

    gamma: float
    multiplicative: bool = False
    missing: str = "mask"

    @property
    def smooths(self) -> bool:
        return self.multiplicative or self.missing != "mask"

    def logits(self, a: Tensor, k: Context) -> Tensor:
        n = k.class_counts.to(torch.float32)
        if self.multiplicative:
            return a * (4 * n / n.sum()).pow(self.gamma)
        return a + log_prior(n, self.gamma, self.missing)


def log_prior(n: Tensor, gamma: float, missing: str = "mask") -> Tensor:
    """γ log n_c [C] up to a constant, from class counts [C] in float32 (`BalancedSoftmax`)."""
    if missing == "eps":
        return gamma * (n / n.sum() + EPS).log()
    known = n.clamp(min=1) if missing == "one" else n
    powers = known.pow(gamma).log()  # the log of the power: γ log n would be 0 · (−∞) at γ = 0
    return torch.where(powers == torch.inf, gamma * known.clamp(min=1).log(), powers)  # n^γ above 3.4e38


# What methods with a frozen head share: only the body is trained, and the server keeps the head as it is.


BODY_ONLY = (Pass("body"),)


class KeepHead(ServerRule[None]):
    """w^{t+1} = mean for the body; the head stays as it was.

    The clients do not train the head, so the mean of what they send is that head. But a mean of equal numbers
    may differ from them in the last bit, and noise that protects uploads would move the head.
    """

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        head = {name: w[name] for name in w.names if in_part(name, "head")}
        return None, Params({**mean.tensors, **head}).clone()


# Training an output layer on features, as servers do that retrain the head.


def train_head(
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    lr: float,
    batch: int,
    draws: torch.Generator,
    biased: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return weight [C, D] and bias [C] after plain SGD on the cross-entropy.

    Args:
        weight: The weight to begin with.
        bias: The bias to begin with.
        x: Features [n, D].
        y: Their classes [n], int64.
        epochs: Passes over the features, each in a new order.
        lr: Learning rate.
        batch: Features in a batch. The last one of an epoch may be smaller.
        draws: The random stream of the orders.
        biased: Whether the bias is trained. Otherwise it stays.
    """
    classes = len(weight)
    for _ in range(epochs):
        for index in torch.split(torch.randperm(len(y), generator=draws).to(y.device), batch):
            error = (x[index] @ weight.T + bias).softmax(-1) - one_hot(y[index], classes).to(x.dtype)
            weight = weight - lr * (error.T @ x[index]) / len(index)
            bias = bias - lr * error.mean(0) if biased else bias
    return weight, bias


# Memories several papers share: class centres, as functions and Wires.


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


class Scored(Personal):
    """The model of a client that is scored after a round, where clients download models of their own.

    Attributes:
        which: The model as downloaded, or after training. Between rounds both are what it would download.
    """

    which: Literal["downloaded", "trained"]

    def model(self, k: Context) -> State:
        return k.start if self.which == "downloaded" else k.state


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


# The downloaded model as a teacher of some classes: FedNTD, FedLMD and FedVLS choose which.


Mode = Literal["eval", "train"]


def teacher_logits(f: Forward, k: Context, mode: str) -> Tensor:
    """Return the logits [B, C] of the downloaded model on the batch.

    Args:
        f: The forward pass of the step.
        k: What the client knows.
        mode: "eval" for evaluation mode, or "train" for training mode with the same dropout.
    """
    if mode == "eval":
        return k.net(k.start, f.x)[0]
    assert f.through is not None
    return f.through(k.w0)[0].detach()


def distilled(logits: Tensor, among: Tensor) -> Tensor:
    """Return the softmax over some classes [B, C]. The other classes have 0, and so has a row without any.

    Args:
        logits: Logits [B, C].
        among: Which classes a row's softmax has, [B, C] bool.
    """
    return torch.where(among, torch.where(among, logits, NEVER).softmax(-1), 0.0)


def divergence(shares: Tensor, logits: Tensor, among: Tensor) -> Tensor:
    """Return the mean over the batch of KL(shares ‖ softmax over some classes of the logits), in nats.

    Args:
        shares: Probabilities [B, C], which are 0 outside `among`. A row of zeros has the value 0.
        logits: Logits [B, C].
        among: Which classes a row's softmax has, [B, C] bool.
    """
    scores = torch.where(among, logits, NEVER).log_softmax(-1)
    return (torch.xlogy(shares, shares) - shares * scores).sum(-1).mean()
