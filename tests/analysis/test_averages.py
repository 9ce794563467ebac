"""MAP's Fig. 9: the printed averages need no run; ours are over the columns that all methods have."""

from __future__ import annotations

from pathlib import Path

import pytest
from raffed.analysis.figures.theme import svg
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.averages import ScorePair, averages_view, front
from raffed.analysis.reproduction.item_runs import Reproduction, load_item
from raffed.analysis.reproduction.item_views import showable

from raffed.results import MetricsWriter, Row, write_json
from raffed.tables.catalogue import find_item
from raffed.tables.item_file import write_item
from raffed.tables.planner import planned_runs


def written(parent: Path, name: str, accuracy: float, personal: float) -> Path:
    """A run of one round."""
    writer = MetricsWriter(parent / name, name, "m", "d", "s", 0)
    writer.add(
        [
            Row(1, "global", "test", "accuracy", accuracy, n=1),
            Row(1, "personal", "local_test", "accuracy", personal, n=1),
        ]
    )
    writer.flush()
    write_json(
        parent / name / "run.json",
        {"run_id": name, "state": "finished", "config": {"method": "m"}, "clients": 1},
    )
    return parent / name


def test_the_front_is_what_nobody_beats_in_both() -> None:
    pairs = {
        "a": ScorePair(0.5, 0.9),
        "b": ScorePair(0.9, 0.5),
        "c": ScorePair(0.5, 0.8),
        "d": ScorePair(0.6, 0.6),
        "e": ScorePair(0.6, 0.6),
    }
    assert front(pairs) == {"a", "b", "d", "e"}


def test_a_figure_without_printed_numbers_shows_ours_alone(tmp_path: Path) -> None:
    """Fig. 11: its FedAvg is no row of a table, though Tables I and II have averages of a FedAvg."""
    item = find_item("map/fig11")
    found = load_item(write_item(item, "full", tmp_path, planned_runs(item, "full", tmp_path, [], 1)))
    assert averages_view(found, load_runs([])) == ([], {})
    assert not showable(found)
    for cell in found.about["cells"]:
        if cell["row"] in ("FedAvg", "MAP (lam = 0.5)") and cell["column"] == "FaMnist LeNet":
            cell["runs"].append(str(written(tmp_path, cell["row"].partition(" ")[0], 0.5, 0.25)))
    (drawn,), tables = averages_view(found, load_runs([tmp_path]))
    (table,) = tables.values()
    assert table.titles == ["Method", "Ours: aggregation %", "Ours: personalization %", "Ours: front"]
    assert next(line for line in table.rows if line[0] == "MAP (lam = 0.5)")[1:] == ["50.0", "25.0", "yes"]
    assert "MAP (lam = 0.5)" in svg(drawn.figure)


@pytest.fixture
def figure(tmp_path: Path) -> Reproduction:
    item = find_item("map/fig9")
    path = write_item(item, "full", tmp_path, planned_runs(item, "full", tmp_path, [], 1))
    return load_item(path)


def test_printed_averages_are_drawn_without_a_run_and_the_paper_s_two_methods_are_on_the_front(
    figure: Reproduction,
) -> None:
    """docs/papers/map.md §E6, Fig. 9: MAP and ScaMAP; all 21 methods of Table I are there."""
    drawn, tables = averages_view(figure, load_runs([]))
    (table,) = tables.values()
    assert len(drawn) == 1
    assert len(table.rows) == 21
    assert {line[0] for line in table.rows if line[3] == "yes"} == {"MAP", "ScaMAP"}
    assert next(line for line in table.rows if line[0] == "FedAvg")[1:] == [
        "64.0",
        "71.3",
        "",
        "–",
        "–",
        "–",
    ]
    assert "ScaMAP" in svg(drawn[0].figure)


def test_ours_are_means_over_the_columns_that_all_methods_with_runs_have(
    figure: Reproduction, tmp_path: Path
) -> None:
    for cell in figure.about["cells"]:
        at = {
            ("FedAvg", "FaMnist LeNet"): (0.8, 0.9),
            ("FedAvg", "FaMnist MLPNet"): (0.6, 0.7),
            ("MAP", "FaMnist LeNet"): (0.7, 1.0),
        }.get((cell["row"], cell["column"]))
        if at is None:
            continue
        cell["runs"].append(str(written(tmp_path, f"{cell['row']}-{cell['column']}".replace(" ", "-"), *at)))
    drawn, tables = averages_view(figure, load_runs([tmp_path]))
    (table,) = tables.values()
    lines = {line[0]: line[4:] for line in table.rows}
    assert len(drawn) == 2
    assert "FaMnist LeNet" in drawn[1].caption
    assert "MLPNet" not in drawn[1].caption
    assert lines["FedAvg"] == ["80.0", "90.0", "yes"]
    assert lines["MAP"] == ["70.0", "100.0", "yes"]
