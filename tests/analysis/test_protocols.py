"""What each method has by every protocol that papers have, read from the same rows."""

from __future__ import annotations

import pytest
from raffed.analysis.metrics.protocols import Protocols, protocol_table
from raffed.analysis.runs.groups import groups

from raffed.results.metric import Row
from tests.analysis.conftest import WriteRun

RISING = [k / 20 for k in range(1, 12)] + [0.3]  # the best round is not the last one
FLAT = [0.4] * 12
SAMPLES = (20, 60)  # of the two clients


def scored(round: int, model: str, values: tuple[float, float]) -> list[Row]:
    """The rows of a model of the two clients on their test parts, and of the mean."""
    rows = [
        Row(round, model, "local_test", "accuracy", value, client=client, n=SAMPLES[client])
        for client, value in enumerate(values)
    ]
    return [*rows, Row(round, model, "local_test", "accuracy", sum(values) / 2, n=2)]


@pytest.fixture
def before_and_after(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloaded models have the server's accuracy a and a + 0.2, trained ones a + 0.1 and a."""
    written_by = type(write_run).__call__.__globals__
    usual_rows = written_by["rows_of_round"]

    def rows(round: int, accuracy: float, personal: float | None, classes: int, seconds: float) -> list[Row]:
        own = [] if personal is None else scored(round, "personal", (personal, personal))
        return [
            *usual_rows(round, accuracy, None, classes, seconds),
            *scored(round, "global", (accuracy, accuracy + 0.2)),
            *scored(round, "local", (accuracy + 0.1, accuracy)),
            *own,
        ]

    monkeypatch.setitem(written_by, "rows_of_round", rows)


def table(write_run: WriteRun) -> Protocols:
    runs = write_run.load()
    found = protocol_table(runs, groups(runs))
    return found


def line(found: Protocols, method: str) -> dict[str, str]:
    rows = {row[0]: row for row in found.table.rows}
    return dict(zip(found.table.titles, rows[method], strict=True))


def read(found: Protocols, method: str, model: str) -> list[str]:
    """What a method has after the last round, at its best, and as the mean of its ten best rounds."""
    return [line(found, method)[f"{model}, {name} %"] for name in ("last", "best", "ten best")]


@pytest.mark.usefixtures("before_and_after")
def test_a_run_is_read_by_last_best_and_ten_best_before_and_after_as_mean_and_pooled(
    write_run: WriteRun,
) -> None:
    """Of 0.05, 0.10, …, 0.55 and 0.30 the ten best have the mean 0.345. Pooled: (20 x + 60 y)/80."""
    write_run("a", RISING)
    found = table(write_run)
    wanted = {
        "server": ("30.00", "55.00", "34.50"),
        "before, mean": ("40.00", "65.00", "44.50"),
        "before, pooled": ("45.00", "70.00", "49.50"),
        "after, mean": ("35.00", "60.00", "39.50"),
        "after, pooled": ("32.50", "57.50", "37.00"),
    }
    assert {model: tuple(read(found, "fedavg", model)) for model in wanted} == wanted
    assert found.first == ""


@pytest.mark.usefixtures("before_and_after")
def test_ranks_depend_on_the_protocol_and_their_spread_is_shown(write_run: WriteRun) -> None:
    """0.4 is above the other's last round and its ten best, and below its best round, in every model."""
    write_run("a", RISING)
    write_run("b", FLAT, method="fedprox")
    found = table(write_run)
    assert read(found, "fedavg", "server") == ["30.00 (2)", "55.00 (1)", "34.50 (2)"]
    assert read(found, "fedprox", "server") == ["40.00 (1)", "40.00 (2)", "40.00 (1)"]
    assert line(found, "fedavg")["Ranks"] == line(found, "fedprox")["Ranks"] == "1–2"
    assert found.first == "First of 15 protocols: fedprox by 10, fedavg by 5."
