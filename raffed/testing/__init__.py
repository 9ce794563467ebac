"""The contract of methods, networks, data sets, splits, losses, metrics, schedules, selections and tables.

    from raffed.testing import check_method
    check_method("mylab.methods:myprox").raise_if_failed()

Each `check_…` returns `Findings`: one outcome for each check, with a name, the sentence that should hold and,
if it does not, what is wrong and where. In pytest, the marker `raffed` makes each check a test of its own
(plugin.py). Importing this package loads neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raffed.testing.contract import CheckFinding, ContractError, Findings
    from raffed.testing.datasets import check_dataset, check_split
    from raffed.testing.federation import TinyFederation, tiny_federation
    from raffed.testing.functions import check_loss, check_metric, check_schedule, check_selection
    from raffed.testing.methods import check_method
    from raffed.testing.models import check_model
    from raffed.testing.recognise import check
    from raffed.testing.tables import check_table

__all__ = [
    "CheckFinding",
    "ContractError",
    "Findings",
    "TinyFederation",
    "check",
    "check_dataset",
    "check_loss",
    "check_method",
    "check_metric",
    "check_model",
    "check_schedule",
    "check_selection",
    "check_split",
    "check_table",
    "tiny_federation",
]

_HOMES = {
    **dict.fromkeys(("ContractError", "CheckFinding", "Findings"), "contract"),
    **dict.fromkeys(("TinyFederation", "tiny_federation"), "federation"),
    **dict.fromkeys(("check_dataset", "check_split"), "datasets"),
    **dict.fromkeys(("check_loss", "check_metric", "check_schedule", "check_selection"), "functions"),
    "check": "recognise",
    "check_method": "methods",
    "check_model": "models",
    "check_table": "tables",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    Raises:
        AttributeError: There is no public name like this.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'raffed.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"raffed.testing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
