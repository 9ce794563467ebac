"""SOLO: every client trains a model of its own and nothing is sent; the reference point of
personalization.
"""

from __future__ import annotations

from raffed.core.method import Method
from raffed.core.parts import ParameterSplit, Pass
from raffed.core.server import Mean
from raffed.errors import check_range

PRIVATE = ParameterSplit(personal="all", buffers="local")


def solo(epochs: float = 0.0) -> Method:
    """SOLO. A client trains when it would have been sampled, from the common initial model; epochs: 0 is the
    run's.

        Row SOLO of MpFedcon's Table 1. The server holds no model: no accuracy on the global test set.
    """
    check_range("epochs", epochs, 0.0, 1e4)
    return Method("SOLO", split=PRIVATE, passes=(Pass(epochs=epochs or None),), mean=Mean(by="clients"))
