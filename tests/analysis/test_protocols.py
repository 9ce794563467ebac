"""What each method has by every protocol that papers have, read from the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from raffed.analysis import write_report
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
    assert found is not None
    return found


def line(found: Protocols, method: str) -> dict[str, str]:
    rows = {row[0]: row for row in found.table.rows}
    return dict(zip(found.table.titles, rows[method], strict=True))


@pytest.mark.usefixtures("before_and_after")
def test_a_run_is_read_by_last_best_and_ten_best_before_and_after_as_mean_and_pooled(
    write_run: WriteRun,
) -> None:
    """Of 0.05, 0.10, …, 0.55 and 0.30 the ten best have the mean 0.345. Pooled: (20 x + 60 y)/80."""
    write_run("a", RISING)
    found = table(write_run)
    assert line(found, "fedavg") == {
        "Method": "fedavg",
        "server, last %": "30.00",
        "server, best %": "55.00",
        "server, ten best %": "34.50",
        "before, mean, last %": "40.00",
        "before, mean, best %": "65.00",
        "before, mean, ten best %": "44.50",
        "before, pooled, last %": "45.00",
        "before, pooled, best %": "70.00",
        "before, pooled, ten best %": "49.50",
        "after, mean, last %": "35.00",
        "after, mean, best %": "60.00",
        "after, mean, ten best %": "39.50",
        "after, pooled, last %": "32.50",
        "after, pooled, best %": "57.50",
        "after, pooled, ten best %": "37.00",
    }
    assert found.first == ""


@pytest.mark.usefixtures("before_and_after")
def test_ranks_depend_on_the_protocol_and_their_spread_is_shown(write_run: WriteRun) -> None:
    """0.4 is above the other's last round and its ten best, and below its best round, in every model."""
    write_run("a", RISING)
    write_run("b", FLAT, method="fedprox")
    found = table(write_run)
    rising, flat = line(found, "fedavg"), line(found, "fedprox")
    assert [rising[f"server, {name} %"] for name in ("last", "best", "ten best")] == [
        "30.00 (2)",
        "55.00 (1)",
        "34.50 (2)",
    ]
    assert [flat[f"server, {name} %"] for name in ("last", "best", "ten best")] == [
        "40.00 (1)",
        "40.00 (2)",
        "40.00 (1)",
    ]
    assert rising["Ranks"] == flat["Ranks"] == "1–2"
    assert found.first == "First of 15 protocols: fedprox by 10, fedavg by 5."


@pytest.mark.usefixtures("before_and_after")
def test_numbers_are_means_over_seeds_and_equal_numbers_have_one_rank(write_run: WriteRun) -> None:
    for seed, last in enumerate((0.2, 0.4)):
        write_run(f"a{seed}", [0.1, last], seed=seed)
        write_run(f"b{seed}", [0.1, 0.3], seed=seed, method="fedprox")
        write_run(f"c{seed}", [0.1, 0.25], seed=seed, method="moon")
    found = table(write_run)
    last = "server, last %"
    assert [line(found, one)[last] for one in ("fedavg", "fedprox", "moon")] == [
        "30.00 (1)",
        "30.00 (1)",
        "25.00 (3)",
    ]
    assert line(found, "moon")["Ranks"] == "3"


@pytest.mark.usefixtures("before_and_after")
def test_personalised_models_have_columns_where_they_are_not_the_trained_ones(write_run: WriteRun) -> None:
    write_run("a", [0.3, 0.4], personal=[0.5, 0.6])
    found = line(table(write_run), "fedavg")
    assert (found["own, mean, last %"], found["own, pooled, best %"]) == ("60.00", "60.00")


def test_a_run_without_scores_of_trained_models_has_only_what_it_has(write_run: WriteRun) -> None:
    write_run("a", [0.3, 0.4], personal=[0.5, 0.6])
    titles = list(table(write_run).table.titles)
    assert titles[1:4] == ["server, last %", "server, best %", "server, ten best %"]
    assert [title for title in titles if title.startswith(("before", "after"))] == []
    assert len([title for title in titles if title.startswith("own")]) == 6


@pytest.mark.usefixtures("before_and_after")
def test_a_method_that_may_not_be_compared_has_numbers_and_no_rank(write_run: WriteRun) -> None:
    write_run("a", RISING)
    write_run("b", FLAT, method="fedprox")
    write_run("c", FLAT, method="moon", partition_sha256="00" * 32)
    found = table(write_run)
    assert line(found, "moon ≠")["server, last %"] == "40.00"
    assert line(found, "moon ≠")["Ranks"] == "–"
    assert line(found, "fedprox")["server, last %"] == "40.00 (1)"


@pytest.mark.usefixtures("before_and_after")
def test_the_report_holds_the_table_once_and_folded(write_run: WriteRun, tmp_path: Path) -> None:
    runs = write_run("a", RISING).parent
    write_run("b", FLAT, method="fedprox")
    page = write_report([runs], tmp_path / "out").read_text(encoding="utf-8")
    heading = '<details class="list"><summary>What a paper would have printed, by protocol</summary>'
    assert page.count(heading) == 1
    told = page[page.index(heading) :]
    assert "First of 15 protocols: FedProx by 10, FedAvg by 5." in told[: told.index("</details>")]
