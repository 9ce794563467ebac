"""LG-FedAvg (Liang et al. 2020): private lower layers under a shared output layer."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Mean, Method, ParameterSplit
from raffed.config.validation import Doc, checked
from raffed.core.parts import Part

Shared = Literal["head", "top"]
BELOW: dict[str, Part] = {"head": "body", "top": "base"}


@checked
def lgfedavg(
    shared: Annotated[
        Shared, Doc("Shared part: the output layer (head), or also the projection before it (top).")
    ] = "head",
) -> Method:
    """LG-FedAvg: every client keeps its lower layers, and the layers above them are averaged.

    Equation:
        w_k = (body_k, head_k), trained together. Only the head travels, and its mean is uniform. It is the
        mirror image of FedPer. Statistics of BatchNorm belong to the body and stay with it.

    The authors begin with a model that FedAvg has trained. For this, export the model of such a run and begin
    with its file (`raffed export`, then `--init FILE`).

    Source:
        Liang et al. 2020 (arXiv 2001.01523); pliang279/LG-FedAvg.

    The authors' runs: momentum 0.5 and equal weights of the clients. On MNIST the last three of five layers
    are shared.

    Departures: on CIFAR-10 the released code shares the two convolutions and keeps the three layers above
    them, which is the mirror image of what the paper and its code for MNIST do: a FedPer whose private part
    is larger than the `top` of `fedper`. The released code keeps each client's best model on *test* data, and
    averages the shared layers of these models once more. Here a client is scored with its model of the round
    (`--validation` selects by validation data).
    """
    split = ParameterSplit(BELOW[shared], buffers="local")
    return Method("LG-FedAvg", split=split, mean=Mean("clients"))
