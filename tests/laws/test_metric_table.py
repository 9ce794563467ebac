"""METRICS and the rows of runs agree: no row without a metric, no metric without a row, and every value in
its unit's range.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import raffed
from raffed import Clock, Data, Faults, Federation, Local, Privacy
from raffed.errors import UsageError
from raffed.results.metric import Level, Metric, MetricTable, Row, Unit
from raffed.results.metrics import (
    FRACTION,
    METRICS,
    NOISE,
    PERSONAL_F1,
    STAGE_ACCURACY,
    TERM_STRENGTH,
    TEST_ACCURACY,
    metric_lines,
)
from raffed.results.writer import MetricsWriter
from tests.tiny import digits

ROOT = Path(__file__).parents[2]
BASE = digits("p4c3", local_test=0.3, local=Local(0.05, batch_size=32, epochs=0.3), federation=Federation(1))
ASKED = replace(BASE.federation, survey=1, measures="spectrum,memory,calibration,fairness,training")
# A small set of runs that together measure everything
RUNS = {
    "everything asked": replace(
        BASE,
        data=replace(BASE.data, validation=0.2),
        local=replace(BASE.local, batch_size=8),
        federation=ASKED,
        faults=Faults(drop=0.3, late=0.3, straggle=0.5, attack="backdoor", attacker_list="0"),
    ),
    "new clients": replace(BASE, federation=replace(BASE.federation, unseen_clients=0.25)),
    "private stage": replace(BASE, method="map"),
    "terms": replace(BASE, method="fedprox", federation=replace(BASE.federation, measures="term_strength")),
    "layers kept": replace(BASE, method="fedrep", federation=ASKED),
    "server with images": replace(BASE, method="feddf", args={"server_steps": 1, "public": 50}),
    "server that does not wait": replace(BASE, clock=Clock(speeds="constant", server="fedasync")),
    "server that extrapolates": replace(BASE, method="feddyn"),
    "stages": replace(
        BASE, data=Data("digits", "stages:4:3:2:if4"), federation=replace(BASE.federation, rounds=2)
    ),
}
NOISY = replace(BASE, privacy=Privacy(clip=1.0, noise=0.5))


def level(row: Row) -> set[str]:
    """The levels that a row can belong to."""
    return (
        {"client"} if row.client is not None else {"class"} if row.class_ is not None else {"global", "mean"}
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Every row of the small set of runs."""
    noisy = [NOISY] if importlib.util.find_spec("opacus") else []
    found = []
    for config in [*RUNS.values(), *noisy]:
        for one in raffed.run(config).metrics.to_pylist():
            found.append(Row(**{name: one[name.rstrip("_")] for name in Row._fields}))
    return found


def test_every_row_is_in_the_table_at_its_level_and_in_its_unit_s_range(rows: list[Row]) -> None:
    wrong = []
    for row in rows:
        metric = METRICS.at(row.model, row.split, row.metric)
        if not metric.unit.holds(row.value) or not level(row) & {*metric.levels}:
            wrong.append(row)
    assert len(rows) > 300
    assert not wrong


def test_every_metric_is_written_at_every_level_or_needs_the_extra_that_it_names(rows: list[Row]) -> None:
    written = {
        (METRICS.at(row.model, row.split, row.metric).place, one) for row in rows for one in level(row)
    }
    missing = [
        (metric, one) for metric in METRICS for one in metric.levels if (metric.place, one) not in written
    ]
    assert all("extra `privacy`" in metric.when for metric, _ in missing), missing
    assert {metric.name for metric in METRICS if metric.when.startswith(NOISE)} == {
        "epsilon",
        "epsilon_poisson",
    }


def test_the_table_has_no_two_metrics_of_one_place_and_says_everything_about_each() -> None:
    places = [metric.place for metric in METRICS]
    assert len(set(places)) == len(places) == len([*METRICS])
    assert all(metric.when and metric.meaning and metric.n for metric in METRICS)
    assert {one for metric in METRICS for one in metric.levels} == {*get_args(Level)}
    assert [len(line) for line in metric_lines()] == [8] * len([*METRICS])


def test_a_row_of_a_metric_that_is_not_in_the_table_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    into = MetricsWriter(tmp_path, run_id="r", method="fedavg", dataset="digits", partition="iid:4", seed=0)
    with pytest.raises(UsageError, match=r"metric of global models on test 'acuracy'; nearest: accuracy"):
        into.add([Row(1, "global", "test", "acuracy", 0.5)])
    with pytest.raises(UsageError, match="accuracy_stage"):
        into.add([Row(1, "personal", "local_test", "accuracy_stage", 0.5)])
    into.add([Row(1, "personal", "local_test", "accuracy_stage12", 0.5)])


def test_a_metric_makes_no_row_of_a_level_that_it_does_not_have() -> None:
    with pytest.raises(UsageError, match="accuracy of global models has no client rows"):
        TEST_ACCURACY.row(1, 0.5, client=3)
    with pytest.raises(UsageError, match="macro_f1 of personal models has no class rows"):
        PERSONAL_F1.row(1, 0.5, class_=3)
    with pytest.raises(UsageError, match="accuracy_stage of personal models has no common rows"):
        STAGE_ACCURACY.row(1, 0.5, number=0)
    with pytest.raises(UsageError, match="only a numbered metric takes a number"):
        STAGE_ACCURACY.row(1, 0.5, client=0)
    assert STAGE_ACCURACY.row(1, 0.5, client=0, number=3).metric == "accuracy_stage3"


def test_a_metric_with_named_parts_has_rows_of_the_whole_and_of_parts() -> None:
    whole = TERM_STRENGTH["global"]
    assert whole.row(1, 0.5).metric == "term_strength"
    assert whole.row(1, 0.5, part="intra_class").metric == "term_strength_intra_class"
    assert METRICS.at("global", "train", "term_strength_intra_class") == METRICS.at(*whole.place) == whole
    assert whole.title == "term_strength[_NAME]"
    with pytest.raises(UsageError, match="accuracy has no named parts"):
        TEST_ACCURACY.row(1, 0.5, part="x")


def own(name: str = "calibration", unit: Unit = FRACTION, **other: str) -> Metric:
    """A metric as a user may add one."""
    words = {
        "model": "global",
        "split": "test",
        "better": "lower",
        "when": "always",
        "meaning": "ECE",
    } | other
    return Metric(name=name, unit=unit, levels=("global",), n="samples", **words)  # type: ignore[arg-type]


def test_a_user_s_metric_brings_its_level_unit_direction_and_meaning() -> None:
    table = MetricTable()
    metric = table.register(own())
    assert [*table] == [metric]
    assert table.at("global", "test", "calibration").row(2, 0.25, n=10).value == 0.25


def calls_of(name: str, folder: str) -> list[str]:
    """The files below a folder that call a name."""
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if f"{name}(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def test_rows_are_made_by_their_metric_only() -> None:
    assert calls_of("Row", "raffed") == ["raffed/results/metric.py"]


def literals(path: Path) -> list[str]:
    """The words with which a file compares the column `metric`."""
    return [
        other.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("['metric']")
        for other in node.comparators
        if isinstance(other, ast.Constant)
    ]


def test_analysis_reads_a_run_s_rows_by_the_table_and_not_by_words_that_could_be_misspelt() -> None:
    files = sorted((ROOT / "analysis").rglob("*.py"))
    assert len(files) > 40
    assert {path.name: found for path in files if (found := literals(path))} == {}


def test_the_table_is_known_without_torch_and_pyarrow() -> None:
    script = (
        "import sys, raffed.results.metrics; print(sorted({'torch', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
