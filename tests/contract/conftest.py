"""What holds of every run of the contract suite."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from raffed.results.metric import Row
from raffed.results.metrics import METRICS
from raffed.results.writer import MetricsWriter


@pytest.fixture(autouse=True)
def every_row_lies_in_its_metric_s_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every row that a run of this process writes. The writer itself refuses unknown metrics."""
    add = MetricsWriter.add

    def checked(writer: MetricsWriter, rows: Iterable[Row]) -> None:
        found = list(rows)
        wrong = [
            row for row in found if not METRICS.at(row.model, row.split, row.metric).unit.holds(row.value)
        ]
        assert not wrong, f"outside the metric's range: {wrong}"
        add(writer, found)

    monkeypatch.setattr(MetricsWriter, "add", checked)
