"""FedBABU (Oh et al. 2022): the head keeps its initial draw, and only the body is trained and averaged."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Method
from raffed.config.validation import Doc, Range, checked
from raffed.core.parts import Part
from raffed.methods.common import BODY_ONLY, KeepHead
from raffed.methods.finetune import FineTuned

Scope = Literal["all", "head", "body"]
SCOPES: dict[str, Part] = {"all": "all", "head": "head", "body": "body"}
FineTuneEpochs = Annotated[
    float, Range(0.0, 1e4), Doc("Epochs of the fine-tuning; 0 scores the global model.")
]
EveryRound = Annotated[bool, Doc("Whether to fine-tune in every round, not only the last.")]


@checked
def fedbabu(
    epochs: FineTuneEpochs = 5.0,
    scope: Annotated[
        Scope, Doc("What is fine-tuned: the whole network (all), the head, or the body.")
    ] = "all",
    every_round: EveryRound = False,
) -> Method:
    """FedBABU: the head keeps its initial draw, and only the body is trained and averaged.

    Equation:
        min over the body of CE(W₀ h), with the same initial head W₀ for everybody, in every round. Then each
        client fine-tunes the network for `epochs`, is scored, and discards that.

    Source:
        Oh, Kim and Yun, ICLR 2022, arXiv 2106.06042; jhoon-oh/FedBABU. The defaults are the official ones: 5
        epochs of the whole network. The run's rate of the last round is the rate of the fine-tuning.

    The head is neither stepped nor decayed, and the server keeps it bit for bit. It travels with the weights,
    although it need not. Arguments of the network choose another frozen head: head_init = orthogonal with
    features = l2 is FedUH, and head_init = etf is FedAvg under a simplex frame.

    The authors' runs: rate 0.1, multiplied by 0.1 after half and again after three quarters of the rounds
    (`--schedule multistep`); momentum 0.9, no weight decay, batches of 50.

    Departures: means are weighted by samples, where the official code, whose clients have equally many, has
    uniform ones (`--weighting clients`); BatchNorm keeps running statistics, which the official code switches
    off.
    """
    tuned = FineTuned(epochs, SCOPES[scope], every_round)
    return Method("FedBABU", passes=BODY_ONLY, personal=tuned, server=KeepHead())
