"""PriorCE: FedAvg whose clients learn with the log of their class prior added to the logits (balanced
softmax, Ren et al. 2020; logit adjustment, Menon et al. 2021).
"""

from __future__ import annotations

from typing import Annotated

from raffed import Method
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.methods.common import BalancedSoftmax, MissingClass


@checked
def priorce(
    tau: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("τ, exponent of the class prior; 0 is FedAvg.")
    ] = 1.0,
    missing: Annotated[
        MissingClass,
        Doc(
            "What a class that the client misses gets: no probability (mask), the log of 1e-9 (eps), or the "
            "log of a count of 1 (one)."
        ),
    ] = "mask",
) -> Method:
    """PriorCE: FedAvg whose clients add the log of their class prior to the logits.

    Equation:
        CE(z + τ log n_k), n_k the client's class counts, in local training only (`BalancedSoftmax`). The
        global model is scored without the prior.

    Source:
        Balanced softmax, Ren et al., NeurIPS 2020; logit adjustment, Menon et al., ICLR 2021. Public codes
        differ in what a missing class gets: FedROD's and FedLoGe's have −∞ (mask), FedVLS's PriorCELoss adds
        1e-9 to the prior (eps), FedETF's counts it once (one).
    """
    return Method("PriorCE", head=BalancedSoftmax(tau, missing=missing) if tau else None)
