"""SOLO: every client trains a model of its own and nothing is sent; the reference point of
personalization.
"""

from __future__ import annotations

from typing import Annotated

from raffed import Mean, Method, ParameterSplit, Pass
from raffed.config.validation import Doc, Range, checked

PRIVATE = ParameterSplit(personal="all", buffers="local")


@checked
def solo(
    epochs: Annotated[float, Range(0.0, 1e4), Doc("Epochs of local training; 0 is the run's.")] = 0.0,
) -> Method:
    """SOLO: every client trains a model of its own and nothing is sent.

    Equation:
        v_k ← v_k − η ∇f_k(v_k), from the common initial model, in the rounds in which the client would have
        been sampled. The server holds no model, so there is no accuracy on the global test set.

    Source:
        Row SOLO of MpFedcon's Table 1.
    """
    return Method("SOLO", split=PRIVATE, passes=(Pass(epochs=epochs or None),), mean=Mean(by="clients"))
