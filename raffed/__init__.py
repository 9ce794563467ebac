"""raffed: a simulator of federated learning for clients that miss some of the classes.

A run is described by a `RunConfig`, executed by `run`, and read through a `RunResult`. A method of one's own
is a function that returns a `Method`; its ingredients are subclasses of `Term`, `Head`, `Correction`,
`Personal` and others.

Example:
    import raffed

    result = raffed.run(raffed.RunConfig(method="map"), out="runs/map")
    result.accuracy, result.personalization, result.to_pandas()
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
_HERE = Path(__file__).resolve()
if (_HERE.parents[1] / "pyproject.toml").is_file() and (_HERE.parents[1] / "tune_spaces").is_dir():
    __path__.append(str(_HERE.parents[1]))  # in a checkout raffed.analysis and others stand beside raffed/

if TYPE_CHECKING:
    from raffed.api.branching import extend as extend
    from raffed.api.branching import fork as fork
    from raffed.api.comparing import compare as compare
    from raffed.api.reporting import bundle as bundle
    from raffed.api.reporting import replay as replay
    from raffed.api.reporting import report as report
    from raffed.api.reporting import verify as verify
    from raffed.api.reproducing import reproduce as reproduce
    from raffed.api.tuning import tune as tune
    from raffed.config.faults import Faults as Faults
    from raffed.config.federation import Federation as Federation
    from raffed.config.portable import portable as portable
    from raffed.config.run import RunConfig as RunConfig
    from raffed.config.sections import Clock as Clock
    from raffed.config.sections import Data as Data
    from raffed.config.sections import Model as Model
    from raffed.config.sections import Numerics as Numerics
    from raffed.config.sections import Privacy as Privacy
    from raffed.config.sections import Runtime as Runtime
    from raffed.config.training import Local as Local
    from raffed.config.validation import Choices as Choices
    from raffed.config.validation import Doc as Doc
    from raffed.config.validation import Length as Length
    from raffed.config.validation import Range as Range
    from raffed.config.validation import Strength as Strength
    from raffed.config.validation import Words as Words
    from raffed.core.context import ClientData as ClientData
    from raffed.core.context import Context as Context
    from raffed.core.context import Forward as Forward
    from raffed.core.context import Received as Received
    from raffed.core.context import ServerContext as ServerContext
    from raffed.core.context import Spec as Spec
    from raffed.core.ingredients import Correction as Correction
    from raffed.core.ingredients import Gradient as Gradient
    from raffed.core.ingredients import Head as Head
    from raffed.core.ingredients import Ingredient as Ingredient
    from raffed.core.ingredients import LocalSolver as LocalSolver
    from raffed.core.ingredients import Personal as Personal
    from raffed.core.ingredients import Term as Term
    from raffed.core.messages import Addressed as Addressed
    from raffed.core.messages import Broadcast as Broadcast
    from raffed.core.messages import Private as Private
    from raffed.core.messages import Summable as Summable
    from raffed.core.messages import Upload as Upload
    from raffed.core.messages import Wire as Wire
    from raffed.core.method import Method as Method
    from raffed.core.own_functions import loss as loss
    from raffed.core.own_functions import metric as metric
    from raffed.core.params import Params as Params
    from raffed.core.params import State as State
    from raffed.core.parts import Budget as Budget
    from raffed.core.parts import ParameterSplit as ParameterSplit
    from raffed.core.parts import Pass as Pass
    from raffed.core.server import Assign as Assign
    from raffed.core.server import Mean as Mean
    from raffed.core.server import Mixtures as Mixtures
    from raffed.core.server import ServerData as ServerData
    from raffed.core.server import ServerRule as ServerRule
    from raffed.core.server import ServerSGD as ServerSGD
    from raffed.data.dataset import Dataset as Dataset
    from raffed.data.splits import split as split
    from raffed.methods.own import method as method
    from raffed.models.own.wrapping import as_net as as_net
    from raffed.runs.run import RunResult as RunResult
    from raffed.runs.run import iterate as iterate
    from raffed.runs.run import resume as resume
    from raffed.runs.run import run as run
    from raffed.runs.saved_model import export as export
    from raffed.runs.saved_model import load_model as load_model
    from raffed.tables.catalogue import table as table
    from raffed.tables.items import Claim as Claim


_HOMES = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(_HERE.read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("raffed.")
    for alias in node.names
}
"""Public name → its module, as the imports for type checkers above state it."""
__all__ = sorted([*_HOMES, "__version__"])


def __dir__() -> list[str]:
    """Return the public names, for `dir` and `help`, without importing what they stand for."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `raffed --help` does not load torch or Ray.

    Args:
        name: A name in `__all__`.

    Returns:
        The class or function of that name.

    Raises:
        AttributeError: The package has no public name like this.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'raffed' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
