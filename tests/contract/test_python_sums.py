"""No bit of a run depends on how this version of Python adds floats.

From version 3.12 on, `sum` makes up for rounding errors (Neumaier's sums), and before it does not. Runs whose
hashes must be equal are computed with both: raffed's modules get the other kind in the place of `sum`.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Iterable
from typing import Any

import pytest

import raffed
from raffed import Local, RunConfig
from raffed.core.aggregation.exact_sums import plain_sum
from tests.params import one_in
from tests.tiny import digits

NUMBERS = [0.1] * 10 + [1e16, 1.0, -1e16]
LOCAL = Local(0.1, batch_size=16, epochs=2)  # learns, so that all classes have an F1
BASE = digits("dirichlet:7:0.3", 6, local_test=0.2, samples=600, local=LOCAL)
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": {"federation": {"survey": 1, "measures": "spectrum"}, "data": {"validation": 0.2}},
    "rates by step": {"method": "scaffold", "local": {"schedule": "cosine", "schedule_by": "step"}},
    "feddisco": {"method": "feddisco"},
    "a robust mean": {"federation": {"mean": "multi_krum", "mean_args": {"f": 1}}},
    "map": {"method": "map"},
}


def compensated(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    """What `sum` gives from Python 3.12 on: floats by Neumaier's sum, everything else as ever."""
    values = list(iterable)
    if start != 0 or not values or not all(type(one) is float for one in values):
        return builtins.sum(values, start)
    total = lost = 0.0
    for one in values:
        new = total + one
        lost += (total - new) + one if abs(total) >= abs(one) else (one - new) + total
        total = new
    return total + lost if math.isfinite(lost) else total


def plain(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    """What `sum` gave up to Python 3.11."""
    for one in iterable:
        start = start + one
    return start


OTHER = plain if sys.version_info >= (3, 12) else compensated


def test_the_two_kinds_of_sums_differ() -> None:
    assert OTHER(NUMBERS) != builtins.sum(NUMBERS)
    assert compensated(NUMBERS) == math.fsum(NUMBERS) != plain(NUMBERS)
    assert plain_sum(NUMBERS) == plain(NUMBERS)
    assert plain_sum([]) == 0.0


@pytest.mark.parametrize("name", one_in(3, RUNS))
def test_a_run_has_the_same_bits_with_either_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = BASE.as_dict()
    for section, changes in RUNS[name].items():
        values[section] = {**values[section], **changes} if isinstance(changes, dict) else changes
    config = RunConfig.from_dict(values)
    usual = raffed.run(config).hashes
    for module in [one for key, one in sys.modules.items() if key.partition(".")[0] == "raffed"]:
        monkeypatch.setattr(module, "sum", OTHER, raising=False)
    assert raffed.run(config).hashes == usual
