"""The kinds of ingredients that the slots of a method can hold, with their default behaviour.

What runs inside the training loop is a dense function of tensors: it has no branch, index or shape that
depends on a tensor's value. Then the same line runs for one client and, under vmap, for many clients at once.

Every kind has type parameters: the memory of a client, the message that a client sends, and the memory of the
server, in this order. An ingredient that names them, as in `Correction[ClientControl, ControlDelta,
ServerControl]`, is checked by mypy wherever it reads `k.mine`, `k.server` or `got.sum`. They can be left out:
plain `Term` and plain `Context` are checked as well, except for what these attributes hold.
"""

from __future__ import annotations

from raffed.core.ingredients.base import Compression, CompressionWithFeedback, Ingredient
from raffed.core.ingredients.kinds import (
    SGD_SETTINGS,
    Correction,
    Descent,
    Gradient,
    Head,
    LocalSolver,
    Opening,
    Personal,
    Term,
    UnchangedLogits,
)

__all__ = [
    "SGD_SETTINGS",
    "Compression",
    "CompressionWithFeedback",
    "Correction",
    "Descent",
    "Gradient",
    "Head",
    "Ingredient",
    "LocalSolver",
    "Opening",
    "Personal",
    "Term",
    "UnchangedLogits",
]
