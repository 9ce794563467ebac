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

__version__ = "0.1.0"
_HERE = Path(__file__).resolve()
if (_HERE.parents[1] / "pyproject.toml").is_file() and (_HERE.parents[1] / "tune_spaces").is_dir():
    __path__.append(str(_HERE.parents[1]))  # in a checkout raffed.analysis and others stand beside raffed/

if TYPE_CHECKING:
    from raffed.api.branching import extend, fork
    from raffed.api.bundling import bundle, replay, verify
    from raffed.api.comparing import compare
    from raffed.api.reporting import report
    from raffed.api.reproducing import reproduce
    from raffed.api.tuning import tune
    from raffed.config.clock import Clock
    from raffed.config.faults import Faults
    from raffed.config.federation import Federation
    from raffed.config.portable import portable
    from raffed.config.privacy import Privacy
    from raffed.config.run import RunConfig
    from raffed.config.sections import Data, Model, Numerics, Runtime
    from raffed.config.training import Local
    from raffed.config.validation import Choices, Doc, Length, Range, Strength, Words
    from raffed.core.addressed import Mixtures
    from raffed.core.context import ClientData, Context, Forward, Received, ServerContext, Spec
    from raffed.core.ingredients import Correction, Gradient, Head, Ingredient, LocalSolver, Personal, Term
    from raffed.core.measures.own_metric import metric
    from raffed.core.messages import Addressed, Broadcast, Private, Summable, Upload, Wire
    from raffed.core.method import Method
    from raffed.core.params import Params, State
    from raffed.core.parts import Budget, ParameterSplit, Pass
    from raffed.core.server import Assign, Mean, ServerData, ServerRule, ServerSGD
    from raffed.core.training.own_loss import loss
    from raffed.data.dataset import Dataset
    from raffed.data.own_split import split
    from raffed.methods.own import method
    from raffed.models.own.wrapping import as_net
    from raffed.runs.result import RunResult
    from raffed.runs.run import iterate, resume, run
    from raffed.runs.saved_model import export, load_model
    from raffed.tables.catalogue import table
    from raffed.tables.items import Claim

__all__ = [
    "Addressed",
    "Assign",
    "Broadcast",
    "Budget",
    "Choices",
    "Claim",
    "ClientData",
    "Clock",
    "Context",
    "Correction",
    "Data",
    "Dataset",
    "Doc",
    "Faults",
    "Federation",
    "Forward",
    "Gradient",
    "Head",
    "Ingredient",
    "Length",
    "Local",
    "LocalSolver",
    "Mean",
    "Method",
    "Mixtures",
    "Model",
    "Numerics",
    "ParameterSplit",
    "Params",
    "Pass",
    "Personal",
    "Privacy",
    "Private",
    "Range",
    "Received",
    "RunConfig",
    "RunResult",
    "Runtime",
    "ServerContext",
    "ServerData",
    "ServerRule",
    "ServerSGD",
    "Spec",
    "State",
    "Strength",
    "Summable",
    "Term",
    "Upload",
    "Wire",
    "Words",
    "__version__",
    "as_net",
    "bundle",
    "compare",
    "export",
    "extend",
    "fork",
    "iterate",
    "load_model",
    "loss",
    "method",
    "metric",
    "portable",
    "replay",
    "report",
    "reproduce",
    "resume",
    "run",
    "split",
    "table",
    "tune",
    "verify",
]

_HOMES = {
    one.name: str(node.module)
    for node in ast.walk(ast.parse(_HERE.read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("raffed.")
    for one in node.names
}
"""Public name → its module, as the imports for type checkers above state it."""


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
