"""FedBN (Li et al. 2021) and SiloBN (Andreux et al. 2020): BatchNorm that stays with its client."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Mean, Method, ParameterSplit
from raffed.config.validation import Doc, checked

Kept = Literal["layers", "statistics"]


@checked
def fedbn(
    kept: Annotated[
        Kept,
        Doc("What a client keeps of BatchNorm: its layers, or only their statistics, as in SiloBN."),
    ] = "layers",
) -> Method:
    """FedBN: BatchNorm layers stay with their client, and all other layers are averaged.

    Equation:
        w_k = (shared_k, norm_k), where norm_k are BatchNorm's scales, offsets and running statistics. Only
        shared_k travels, and the mean is uniform (`--weighting samples` weights it by samples). At its first
        participation a client has the initial norm_k. With `kept` = "statistics" (SiloBN) scales and offsets
        are shared too, and only the statistics stay.

    Layers are found by their type when the network is built, so that BatchNorm of a shortcut stays as well. A
    network without BatchNorm trains as FedAvg with uniform weights. The server never has a whole model.

    Source:
        Li, Jiang, Zhang, Kamp and Dou, ICLR 2021 (arXiv 2102.07623). Its script has SGD of rate 0.01, batches
        of 32, one epoch, and 100 rounds of all clients. SiloBN is from Andreux et al. 2020.

    Departure: the released code looks for "bn" in the names of layers, which finds every BatchNorm layer of
    its own networks, but not of all networks.
    """
    split = ParameterSplit("norm" if kept == "layers" else "none", buffers="local")
    return Method("FedBN", split=split, mean=Mean("clients"))
