"""Reports show a method of one's own by its title, with the reference beside it, and metrics of one's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.loading import load_runs
from analysis.metrics.own_metrics import own_columns, own_measures
from analysis.metrics.summary import cells, summary, to_html
from analysis.report import write_report
from analysis.runs.groups import groups
from raffed.results import MetricsWriter, write_json
from raffed.results.metrics import METRICS, TEST_ACCURACY
from tests.analysis.conftest import WriteRun


def labels(folder: Path) -> list[str]:
    return [group.label for group in groups(load_runs(folder))]


def test_a_method_is_shown_by_its_title_with_its_reference_on_hover(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.3])
    write_run("b", [0.4], method="./prox.py:myprox", title='My "Prox"')
    runs = load_runs(tmp_path)
    assert {group.label: group.reference for group in groups(runs)} == {
        "fedavg": "",
        'My "Prox"': "./prox.py:myprox",
    }
    html = to_html(summary(runs))
    assert 'title="./prox.py:myprox"' in html
    assert "My &#34;Prox&#34;" in html
    page = write_report([tmp_path], tmp_path / "report").read_text(encoding="utf-8")
    assert '<b>b</b> · <span title="./prox.py:myprox">My &#34;Prox&#34;</span>' in page
    assert "./prox.py:myprox" in (tmp_path / "report" / "summary.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("title", ["FedAvg", "./prox.py:other", ""])
def test_a_title_that_could_be_another_method_s_does_not_stand_for_it(
    tmp_path: Path, write_run: WriteRun, title: str
) -> None:
    write_run("b", [0.4], method="./prox.py:myprox", title=title)
    write_run("c", [0.4], method="./prox.py:other", title="Other")
    assert "./prox.py:myprox" in labels(tmp_path)


def test_two_methods_of_one_title_keep_their_references(tmp_path: Path, write_run: WriteRun) -> None:
    for name in ("a", "b"):
        write_run(name, [0.4], method=f"./{name}.py:prox", title="Prox")
    assert labels(tmp_path) == ["./a.py:prox", "./b.py:prox"]


def test_a_table_without_titles_has_no_column_of_references(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.3])
    assert "reference" not in summary(load_runs(tmp_path))
    assert "Method" in cells(summary(load_runs(tmp_path)))[0]


def test_the_last_value_of_an_own_metric_is_not_one_of_an_earlier_round_if_it_is_nan(
    tmp_path: Path,
) -> None:
    metric = METRICS.admit(replace(TEST_ACCURACY, name="mine"))
    writer = MetricsWriter(tmp_path / "a", "a", "fedavg", "digits", "p10c2", 0)
    values = (0.9, 0.8, math.nan)
    writer.add([metric.row(number, one, n=9) for number, one in enumerate(values, 1)])
    writer.flush()
    described = [{"name": "mine", "better": "higher", "unit": "fraction"}]
    config = {
        "method": "fedavg",
        "data": {"dataset": "digits", "split": "p10c2"},
        "federation": {"rounds": 3},
    }
    about = {"run_id": "a", "state": "finished", "config": config, "metrics": described}
    write_json(tmp_path / "a" / "run.json", about)
    assert math.isnan(own_measures(load_runs([tmp_path]))["own:mine:global:higher:fraction"].item())


def test_metrics_of_one_name_and_two_directions_have_columns_of_their_own(tmp_path: Path) -> None:
    """Two people call other things by one name; a run's value is in the column of its own metric alone."""
    metric = METRICS.admit(replace(TEST_ACCURACY, name="mine"))
    config = {"method": "fedavg", "data": {"dataset": "digits", "split": "p10c2"}}
    for name, better, value in (("a", "higher", 0.75), ("b", "lower", 0.25)):
        writer = MetricsWriter(tmp_path / name, name, "fedavg", "digits", "p10c2", 0)
        writer.add([metric.row(1, value, n=9)])
        writer.flush()
        described = [{"name": "mine", "better": better, "unit": "fraction"}]
        about = {"run_id": name, "state": "finished", "config": config, "metrics": described}
        write_json(tmp_path / name / "run.json", about)
    found = own_measures(load_runs([tmp_path]))
    assert found["own:mine:global:higher:fraction"].dropna().to_dict() == {"a": 0.75}
    assert found["own:mine:global:lower:fraction"].dropna().to_dict() == {"b": 0.25}


def test_columns_of_own_metrics_say_model_unit_and_direction() -> None:
    found = own_columns(
        [
            "own:top2:global:higher:fraction",
            "own:nll:personal:lower:nats",
            "accuracy_last",
            "own:a:b:c:d_ci",
            "own:a:b:c:d_seeds",
        ]
    )
    assert [(one.title, one.unit, one.higher_is_better) for one in found.values()] == [
        ("top2, global % ↑", 0.01, True),
        ("nll, personal in nats ↓", 1, False),
    ]
