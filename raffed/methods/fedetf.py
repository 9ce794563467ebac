"""FedETF (Li et al. 2023): unit features under a frozen simplex ETF, trained by the balanced softmax."""

from __future__ import annotations

from typing import Annotated

from raffed import Method
from raffed.config.validation import Doc, Range, checked
from raffed.methods.common import BODY_ONLY, BalancedSoftmax, KeepHead, MissingClass
from raffed.methods.fedbabu import EveryRound, FineTuneEpochs
from raffed.methods.finetune import FineTuned

LearnScale = Annotated[bool, Doc("Whether s is learned; then scale is its first value.")]


@checked
def fedetf(
    scale: Annotated[float, Range(0.0, 1e6, open_low=True), Doc("s, length of the features.")] = 10.0,
    learn_scale: LearnScale = True,
    missing: Annotated[
        MissingClass,
        Doc(
            "What a class that the client misses gets in the loss: the log of a count of 1 (one), no "
            "probability (mask), or the log of 1e-9 (eps)."
        ),
    ] = "one",
    epochs: FineTuneEpochs = 3.0,
    every_round: EveryRound = False,
) -> Method:
    """FedETF: features of one length under a frozen simplex ETF, trained by the balanced softmax.

    Equation:
        CE(s ẑᵀM + log max(n_k, 1)) with ẑ = z/‖z‖, M a frozen simplex ETF that is the same for everybody, s a
        learned number, and n_k the client's class counts (`BalancedSoftmax`). Only the body and s are trained
        and averaged. Then each client fine-tunes the whole network for `epochs` by cross-entropy, is scored,
        and discards that.

    Source:
        Li, Shang, He, Lin and Wu, ICCV 2023, arXiv 2303.10058; ZexiLee/ICCV-2023-FedETF. s begins at 10 (the
        official CNN and VGG; LeNet and ResNet begin at 1).

    The method builds its network with feature_layer = true, which is the paper's linear projection,
    features = l2, head_init = etf and head_bias = false.

    Departures: a client's optimiser lives on from round
    to round in the official code, with its momentum, and begins anew in every round here; the run's
    `--keep-optimizer` keeps it. The official personal models come from 3 more epochs of this objective, and
    then 20 times 3 epochs on M and 3 on the projection, chosen on validation data.
    """
    network = (
        ("feature_layer", True),
        ("features", "l2"),
        ("feature_scale", float(scale)),
        ("learn_scale", learn_scale),
        ("head_init", "etf"),
        ("head_bias", False),
    )
    return Method(
        "FedETF",
        head=BalancedSoftmax(1.0, missing=missing),
        passes=BODY_ONLY,
        personal=FineTuned(epochs, "all", every_round),
        server=KeepHead(),
        network=network,
    )
