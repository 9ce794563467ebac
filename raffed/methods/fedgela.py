"""FedGELA (Fan et al. 2023): a frozen simplex ETF, scaled by the client's class shares at home."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from raffed import Context, Head, Method, Params, Personal, State
from raffed.config.validation import Doc, Range, checked
from raffed.methods.common import BODY_ONLY, KeepHead


class ScaledByShares(Head):
    """logit_c · C n_{k,c}/(n_k T) in local training only. A missing class has logit 0 and is not masked."""

    temperature: float

    def logits(self, a: Tensor, k: Context) -> Tensor:
        return a * shares(k.class_counts) / self.temperature


class ScaledHead(Personal):
    """The client's model: the one that it trained, under a head whose rows are scaled by C n_{k,c}/n_k."""

    def model(self, k: Context) -> State:
        rows = k.w["head.weight"] * shares(k.class_counts)[:, None]
        return State(Params({**k.w.tensors, "head.weight": rows}).clone(), k.state.b)


def shares(counts: Tensor) -> Tensor:
    """C n_c/n [C] from class counts [C]; 1 where all classes are equally frequent."""
    n = counts.to(torch.float32)
    return len(n) * n / n.sum()


@checked
def fedgela(
    temperature: Annotated[
        float, Range(0.0, 1e6, open_low=True), Doc("T, divides the logits in local training.")
    ] = 0.2,
) -> Method:
    """FedGELA: a frozen simplex ETF on the server, scaled by the client's class shares at home.

    Equation:
        CE(h M diag(C n_{k,c}/n_k)/T) with M a frozen simplex ETF that is the same for everybody
        (`ScaledByShares`). The global model is scored by h M, the client's by h M diag(C n_{k,c}/n_k)
        (`ScaledHead`).

    Source:
        Fan, Zhang, Yao, Han, Zhang and Wang, NeurIPS 2023, arXiv 2405.18972; MediaBrain-SJTU/FedGELA. T =
        0.2 is the code's default; the example of its README has 1e-5.

    The method builds its network with features = bn, head_init = etf and head_bias = false.

    The authors' runs: rate 0.01, momentum 0.9, weight decay 1e-4, gradients bounded by 20 (`--clip-norm`),
    batches of 64 and 10 epochs.

    Departures: the official networks also have a projection (linear, ReLU, linear) before BatchNorm, which a
    network's own `projection` is; the official means are weighted by batches, here by samples; for CIFAR-10
    the official code makes a frame for 84 numbers where features have 512, which does not run.
    """
    network = (("features", "bn"), ("head_init", "etf"), ("head_bias", False))
    return Method(
        "FedGELA",
        head=ScaledByShares(float(temperature)),
        passes=BODY_ONLY,
        personal=ScaledHead(),
        server=KeepHead(),
        network=network,
    )
