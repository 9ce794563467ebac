"""The kinds of ingredients that the slots of a method can hold, with their default behaviour.

What runs inside the training loop is a dense function of tensors: it has no branch, index or shape that
depends on a tensor's value. Then the same line runs for one client and, under vmap, for many clients at once.

Every kind has type parameters: the memory of a client, the message that a client sends, and the memory of the
server, in this order. An ingredient that names them, as in `Correction[ClientControl, ControlDelta,
ServerControl]`, is checked by mypy wherever it reads `k.mine`, `k.server` or `got.sum`. They can be left out:
plain `Term` and plain `Context` are checked as well, except for what these attributes hold.
"""

from __future__ import annotations

from raffed.core.ingredients.base import Compression as Compression
from raffed.core.ingredients.base import CompressionWithFeedback as CompressionWithFeedback
from raffed.core.ingredients.base import Ingredient as Ingredient
from raffed.core.ingredients.kinds import SGD_SETTINGS as SGD_SETTINGS
from raffed.core.ingredients.kinds import Correction as Correction
from raffed.core.ingredients.kinds import Descent as Descent
from raffed.core.ingredients.kinds import Gradient as Gradient
from raffed.core.ingredients.kinds import Head as Head
from raffed.core.ingredients.kinds import LocalSolver as LocalSolver
from raffed.core.ingredients.kinds import Opening as Opening
from raffed.core.ingredients.kinds import Personal as Personal
from raffed.core.ingredients.kinds import Term as Term
from raffed.core.ingredients.kinds import UnchangedLogits as UnchangedLogits
