"""The contract of methods, networks, data sets, splits, losses, metrics, schedules, selections and tables.

    from raffed.testing import check_method
    check_method("mylab.methods:myprox").raise_if_failed()

Each `check_…` returns `Findings`: one outcome for each check, with a name, the sentence that should hold and,
if it does not, what is wrong and where. In pytest, the marker `raffed` makes each check a test of its own
(plugin.py). Importing this package loads neither torch nor Ray.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raffed.testing.contract import CheckFinding as CheckFinding
    from raffed.testing.contract import ContractError as ContractError
    from raffed.testing.contract import Findings as Findings
    from raffed.testing.federation import TinyFederation as TinyFederation
    from raffed.testing.federation import tiny_federation as tiny_federation
    from raffed.testing.functions import check_loss as check_loss
    from raffed.testing.functions import check_metric as check_metric
    from raffed.testing.functions import check_schedule as check_schedule
    from raffed.testing.functions import check_selection as check_selection
    from raffed.testing.inputs import check_dataset as check_dataset
    from raffed.testing.inputs import check_model as check_model
    from raffed.testing.inputs import check_split as check_split
    from raffed.testing.methods import check_method as check_method
    from raffed.testing.recognise import check as check
    from raffed.testing.recognise import check_table as check_table

# Public name → its module, as the imports for type checkers above state it
_HOMES = {
    alias.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("raffed.")
    for alias in node.names
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    Raises:
        AttributeError: There is no public name like this.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'raffed.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
