"""What stands beside a paper's table: rounds with their speed-up and traffic, gains, forgetting, cost;
what it is answered by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.figures.theme import svg
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.cell_values import cell_values
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.reproduction.item_views import item_view
from raffed.analysis.reproduction.verdicts import paper_table
from raffed.analysis.runs.load import Runs
from raffed.analysis.table import TextTable

from raffed.results import MetricsWriter, Row, write_json
from tests.analysis.written_item import written_item

Written = tuple[Reproduction, Runs]


def item(folder: Path, rows: Mapping[str, Sequence[Row]], measure: str, **about: Any) -> Written:
    """An item whose rows have these rows of Parquet, of one column where none is named ("row | column");
    config: split and seed alike.
    """
    cells = []
    for name, found in rows.items():
        writer = MetricsWriter(
            folder / name, name, name.lower(), "digits", about.get("split", "equal:10:5"), 0
        )
        writer.add(sorted(found, key=lambda row: row.round))
        writer.flush()
        for part in (folder / name / "metrics").iterdir():  # of a whole run, so its name begins with round 1
            part.rename(part.with_name(f"part-000001-{part.stem.rpartition('-')[2]}.parquet"))
        config = {
            "method": name.lower(),
            "data": {"dataset": "digits"},
            "federation": {"rounds": 3, "participation": 0.2},
        }
        write_json(
            folder / name / "run.json",
            {"run_id": name, "state": "finished", "config": config, "clients": 10, "partition_sha256": "ab"},
        )
        printed = {**about.get("printed", {}), "method": name} if "printed" in about else {}
        row, _, column = name.partition(" | ")
        cells.append(
            {
                "row": row,
                "column": column or "CIFAR10 (100,5)",
                "printed": printed,
                "runs": [name],
                **({"measure": about["own"][name]} if name in about.get("own", {}) else {}),
            }
        )
    said = {name: about[name] for name in ("baseline", "picture") if name in about}
    found = written_item(folder, cells, paper="mpfedcon", measure=measure, unit="", **said)
    return found, load_runs([folder])


def between(round: int, client: int | None, value: float, model: str = "personal") -> Row:
    return Row(round, model, "local_test", "accuracy_between", value, client=client, n=10)


def sent(round: int, up: int) -> Row:
    return Row(round, "global", "train", "loss", 1.0, n=10, bytes_up=up, bytes_down=up, seconds=1.0)


def curve(values: Sequence[float], up: int) -> list[Row]:
    return [row for r, value in enumerate(values, 1) for row in (between(r, None, value), sent(r, up))]


PRINTED = {"table": "Table 3", "dataset": "CIFAR10", "split": "(100,5)", "metric": "rounds_to_target"}


def test_rounds_to_fedavg_s_accuracy_come_with_speed_up_and_real_traffic(tmp_path: Path) -> None:
    """FedAvg has 0.5, 0.6, 0.7: its accuracy, over its last (up to) ten, is 0.6. Two participants send 4 MB a
    round together.

        Speed-up 3/2 and 2 rounds · 2 MB; FedAvg: all its 3 rounds; the paper's 116 rounds, 1.72 and 139.2 MB
        of FedProx stand beside.
    """
    rows = {
        "FedAvg": curve([0.5, 0.6, 0.7], 4_000_000),
        "FedProx": curve([0.1, 0.6, 0.2], 4_000_000),
        "FedRep": curve([0.1, 0.2, 0.59], 2_000_000),
    }
    found, runs = item(tmp_path, rows, "personal_rounds_to_baseline", printed=PRINTED)
    assert [line[:4] for line in paper_table(found, runs).rows] == [
        ["FedAvg", "CIFAR10 (100,5)", "200", "3"],
        ["FedProx", "CIFAR10 (100,5)", "116", "2"],
        ["FedRep", "CIFAR10 (100,5)", "58", "never"],
    ]
    (table,) = item_view(found, runs).tables.values()
    assert [line[2:] for line in table.rows] == [
        ["3", "1.00", "240.0", "1.00", "6.0"],
        ["2", "1.72", "139.2", "1.50", "4.0"],
        ["never", "3.40", "68.3", "–", "–"],
    ]


@pytest.mark.parametrize("picture", ["gain_bars", "gain_curves"])
def test_gains_are_of_all_clients_over_the_baseline_on_the_same_split(picture: str, tmp_path: Path) -> None:
    """Clients gain +0.1, −0.05, 0 and +0.2: two gain, one loses; an earlier survey does not count."""
    solo, ours = [0.5, 0.5, 0.5, 0.5], [0.6, 0.45, 0.5, 0.7]
    rows = {
        name: [between(3, i, value) for i, value in enumerate(values)] + [between(1, 0, 0.01)]
        for name, values in {"SOLO": solo, "MpFedcon": ours}.items()
    }
    found, runs = item(tmp_path, rows, "between_last", baseline="SOLO", picture=picture)
    view = item_view(found, runs)
    assert view.tables["Who gains"].rows == [
        ["MpFedcon", "CIFAR10 (100,5)", "1", "4", "+6.25", "2", "1", "50"]
    ]
    (drawn,) = view.figures
    assert ("MpFedcon: 50 % gain" if picture == "gain_curves" else "1 of 4 lose") in svg(drawn.figure)


def test_who_loses_and_who_gains_is_counted_client_by_client_against_the_baseline(tmp_path: Path) -> None:
    """Clients gain +0.1, −0.05, 0 and +0.2, though the mean gains: one of four loses, two gain; of the
    baseline against itself none does.
    """
    scores = {"SOLO": [0.5, 0.5, 0.5, 0.5], "Ours": [0.6, 0.45, 0.5, 0.7]}
    rows = {name: [between(3, i, value) for i, value in enumerate(values)] for name, values in scores.items()}
    found, runs = item(tmp_path, rows, "between_last", baseline="SOLO")
    where = "CIFAR10 (100,5)"
    assert cell_values(found, ("Ours", where), runs, "losing_last") == {0: 25.0}
    assert cell_values(found, ("Ours", where), runs, "gaining_last") == {0: 50.0}
    assert [cell_values(found, ("SOLO", where), runs, name) for name in ("losing_last", "gaining_last")] == [
        {0: 0.0}
    ] * 2
    alone = Reproduction(found.folder, {**found.about, "baseline": "Nobody"})
    assert cell_values(alone, ("Ours", where), runs, "losing_last") == {}


def column(table: TextTable, title: str) -> list[str]:
    return [line[list(table.titles).index(title)] for line in table.rows]


def test_a_stage_without_an_evaluated_round_keeps_its_place(tmp_path: Path) -> None:
    """Three stages of a round each, of which the first one was not evaluated."""
    rows = [
        Row(r, "personal", "local_test", "accuracy", value, stage=r - 1, n=2)
        for r, value in ((2, 0.75), (3, 0.5))
    ]
    found, runs = item(tmp_path, {"FedAvg": rows}, "a_sel", split="stages:10:4:3:if5", picture="stages")
    view = item_view(found, runs)
    assert [line[2:5] for line in view.tables["What is forgotten"].rows] == [["–", "50.00", "–"]]
    (drawn,) = view.figures
    line = drawn.figure.axes[0].get_lines()[0]
    assert list(line.get_xdata()) == [1, 2, 3]
    assert list(line.get_ydata()) == pytest.approx([math.nan, 0.75, 0.5], nan_ok=True)


def test_stages_are_drawn_with_the_drop_and_what_is_forgotten(tmp_path: Path) -> None:
    """A_sel falls from 0.9 to 0.6; client 0 forgets 0.9 − 0.5 of stage 1. The other method is read off
    its global model.
    """
    own = [
        Row(r, "personal", "local_test", "accuracy", value, stage=r - 1, n=2)
        for r, value in ((1, 0.9), (2, 0.6))
    ]
    for r, value in ((1, 0.9), (2, 0.5)):
        own.append(Row(r, "personal", "local_test", "accuracy_stage0", value, client=0, stage=r - 1, n=9))
    whole = [between(r, None, value, "global")._replace(stage=r - 1) for r, value in ((1, 0.8), (2, 0.7))]
    found, runs = item(
        tmp_path,
        {"FedAvg": own, "CReFF": own + whole},
        "a_sel",
        split="stages:10:4:2:if5",
        picture="stages",
        own={"CReFF": "a_sel_global"},
    )
    assert column(paper_table(found, runs), "Ours") == ["60.00", "70.00"]
    view = item_view(found, runs)
    assert [line[2:] for line in view.tables["What is forgotten"].rows] == [
        ["90.00", "60.00", "30.00", "40.00"],
        ["80.00", "70.00", "10.00", "–"],
    ]
    assert len(view.figures) == 1


def test_a_table_says_what_the_global_accuracy_is_answered_by_and_how_many_clients_were_measured(
    tmp_path: Path,
) -> None:
    oracle = [Row(3, "global", "local_test", "accuracy_oracle", 0.4, n=10), between(3, None, 0.9)]
    own = [Row(3, "personal", "local_test", "accuracy", 0.5, client=i, n=10) for i in range(7)]
    found, runs = item(
        tmp_path, {"FedAvg": [between(3, None, 0.3, "global")], "FedRep": oracle + own}, "a_glo"
    )
    table = paper_table(found, runs)
    assert column(table, "Ours") == ["30.00", "40.00"]
    assert column(table, "Answered by") == ["global model", "oracle: mean of the heads"]
    local = paper_table(found._replace(about={**found.about, "measure": "a_loc"}), runs)
    assert column(local, "Clients measured, at least") == ["–", "7 of 10"]
    mixed, runs = item(
        tmp_path / "mixed",
        {"FedAvg": [between(3, None, 0.3, "global")], "FedRep": oracle + own},
        "a_glo",
        own={"FedRep": "a_loc"},
    )
    assert column(paper_table(mixed, runs), "Clients measured, at least / Answered by") == [
        "global model",
        "7 of 10",
    ]


def test_where_nothing_is_printed_nothing_is_compared_with_it(tmp_path: Path) -> None:
    rows = {"FedAvg": [between(3, None, 0.3, "global")], "FedRep": [between(3, None, 0.4, "global")]}
    found, runs = item(tmp_path, rows, "a_glo")
    proxy = found._replace(about={**found.about, "scale": "proxy"})
    assert paper_table(proxy, runs).titles == [
        "Method",
        "Column",
        "Ours",
        "Seeds",
        "Ours − FedAvg",
        "Answered by",
    ]
    cells = [{**cell, "printed": {**PRINTED, "method": "FedProx"}} for cell in found.about["cells"]]
    printed = proxy._replace(about={**proxy.about, "cells": cells})
    assert set(paper_table(printed, runs).titles) >= {"Paper", "Paper − FedAvg", "Verdict"}


def test_accuracy_against_the_round_is_of_all_clients_and_the_mean_over_seeds(tmp_path: Path) -> None:
    rows = {
        "FedAvg": [between(r, None, 0.1 * r) for r in (1, 2, 3)],
        "FedRep": [between(3, None, 0.4)],
        "SOLO": [],
    }
    found, runs = item(tmp_path, rows, "between_mean10", picture="rounds")
    (drawn,) = item_view(found, runs).figures
    lines = {tuple(line.get_xdata()): tuple(line.get_ydata()) for line in drawn.figure.axes[0].get_lines()}
    assert lines == {(1, 2, 3): pytest.approx((0.1, 0.2, 0.3)), (3,): (0.4,)}
    rows = {"MAP": [Row(r, "global", "test", "accuracy", 0.2 * r, n=9) for r in (1, 2)]}
    rows["MAP"] += [Row(2, "personal", "local_test", "accuracy", 0.7, n=2)]
    found, runs = item(tmp_path / "in", rows, "accuracy_last", picture="rounds")
    drawn = [tuple(one.figure.axes[0].get_lines()[0].get_ydata()) for one in item_view(found, runs).figures]
    assert drawn == [pytest.approx((0.2, 0.4)), (0.7,)]


def test_final_accuracy_stands_against_the_number_in_its_column_and_what_has_no_run_is_left_out(
    tmp_path: Path,
) -> None:
    """FedAvg has 0.2, 0.4 and 0.3 (of two seeds, 0.25 and 0.35) for E = 1, 5 and 20, not run for 10;
    FedAvg+FT is read off its last round alone, not off the mean with 0.1.
    """
    values = {"E=1": 0.2, "E=5": 0.4, "E=20": 0.25, "E=20, the other seed": 0.35}
    rows = {f"FedAvg | {column}": [between(3, None, value)] for column, value in values.items()} | {
        "FedAvg | E=10": []
    }
    rows["FedAvg+FT | E=5"] = [between(2, None, 0.1), between(3, None, 0.7)]
    found, runs = item(
        tmp_path, rows, "between_mean10", picture="against", own={"FedAvg+FT | E=5": "between_last"}
    )
    found.about["cells"][2]["runs"] += found.about["cells"].pop(3)["runs"]
    (drawn,) = item_view(found, runs).figures
    axes = drawn.figure.axes[0]
    points = [dict(zip(*line.get_data(), strict=True)) for line in axes.get_lines()]
    assert points == [pytest.approx({1: 0.2, 5: 0.4, 20: 0.3}), {5: 0.7}]
    assert (axes.get_xlabel(), axes.get_xticks().tolist()) == ("E", [1, 5, 20])
    assert all(f">{name}<" in svg(drawn.figure) for name in ("FedAvg", "FedAvg+FT"))


def test_bars_are_grouped_by_the_last_word_of_a_column_and_keep_their_place_where_one_is_missing(
    tmp_path: Path,
) -> None:
    """Three methods in two groups of one panel and one of another; in group IF50 the second one has no
    run.
    """
    values = {
        "a | d [4] IF10": 0.1,
        "b | d [4] IF10": 0.2,
        "c | d [4] IF10": 0.3,
        "a | d [4] IF50": 0.4,
        "c | d [4] IF50": 0.5,
        "b | d [5] IF10": 0.6,
    }
    rows = {name: [between(3, None, value, "global")] for name, value in values.items()}
    found, runs = item(tmp_path, rows, "a_glo", picture="bars")
    (drawn,) = item_view(found, runs).figures
    bars = {
        axes.get_title(loc="left"): [(bar.get_x(), bar.get_height()) for bar in axes.patches]
        for axes in drawn.figure.axes
    }
    width = 0.8 / 3
    wanted = [(-0.4, 0.1), (-0.4 + width, 0.2), (-0.4 + 2 * width, 0.3), (0.6, 0.4), (0.6 + 2 * width, 0.5)]
    assert bars["d [4]"] == [pytest.approx(bar) for bar in wanted]
    assert bars["d [5]"] == [pytest.approx((-0.4 + width, 0.6))]
    ticks = [[label.get_text() for label in axes.get_xticklabels()] for axes in drawn.figure.axes[:2]]
    assert ticks == [["IF10", "IF50"], ["IF10"]]
    first = drawn.figure.axes[0].patches
    assert first[0].get_facecolor() == first[3].get_facecolor() != first[1].get_facecolor()


def test_cost_is_time_and_numbers_held_against_accuracy(tmp_path: Path) -> None:
    rows = [
        Row(1, "global", "test", "accuracy", 0.5, n=9),
        Row(2, "local", "train", "loss", 1.0, client=0, n=100, seconds=2.0),
    ]
    rows += [
        Row(2, "local", "train", name, value)
        for name, value in {"floats_model": 1e6, "floats_training": 3e6, "floats_kept": 1e6}.items()
    ]
    found, runs = item(tmp_path, {"MOON": rows}, "accuracy_best", picture="cost")
    view = item_view(found, runs)
    assert view.tables["Cost"].rows == [
        ["MOON", "CIFAR10", "2.000", "20000", "3.000", "3.00", "1.000", "50.00"]
    ]


def test_cost_has_the_mean_over_the_data_sets_that_all_methods_have(tmp_path: Path) -> None:
    """a: 2 s, 3 million numbers (3 models) and 50 % on SVHN, 4 s, 4 million (4 models) and 70 % on FMNIST,
    where it has a second column like the first, and CIFAR10 to itself. b: 1 s, 1 million, 40 % and 60 %.
    """

    def run(seconds: float, held: float, accuracy: float) -> list[Row]:
        rows = [
            Row(1, "global", "test", "accuracy", accuracy, n=9),
            Row(1, "global", "train", "loss", 1.0, n=100),
        ]
        rows += [Row(2, "local", "train", "loss", 1.0, client=0, n=100, seconds=seconds)]
        floats = {"floats_model": 1e6, "floats_training": held, "floats_kept": 0.0}
        return rows + [Row(2, "local", "train", name, value) for name, value in floats.items()]

    rows = {
        "a | SVHN P5C2": run(2.0, 3e6, 0.5),
        "a | FMNIST P5C2": run(4.0, 4e6, 0.7),
        "a | FMNIST IID": run(4.0, 4e6, 0.7),
        "a | CIFAR10 P5C2": run(9.0, 9e6, 0.9),
        "b | SVHN P5C2": run(1.0, 1e6, 0.4),
        "b | FMNIST P5C2": run(1.0, 1e6, 0.6),
    }
    found, runs = item(tmp_path, rows, "accuracy_best", picture="cost")
    view = item_view(found, runs)
    assert view.tables["Cost"].rows[-2:] == [
        ["a", "mean of 2", "3.000", "30000", "3.500", "3.50", "0.000", "60.00"],
        ["b", "mean of 2", "1.000", "10000", "1.000", "1.00", "0.000", "50.00"],
    ]
    assert [line[:2] for line in view.tables["Cost"].rows].count(["a", "CIFAR10"]) == 1
    assert ">mean of 2<" in svg(view.figures[0].figure)
    alone, runs = item(
        tmp_path / "one", {"a | SVHN P5C2": run(2.0, 3e6, 0.5)}, "accuracy_best", picture="cost"
    )
    assert [line[1] for line in item_view(alone, runs).tables["Cost"].rows] == ["SVHN"]


def test_balanced_accuracy_is_the_mean_over_classes_with_test_samples(tmp_path: Path) -> None:
    """Classes 0.9, 0.1 and one without samples: 0.5, though 90 of 100 samples are of the first; then 0.4
    and 0.4: 0.4.
    """
    rows = []
    for r, (whole, *classes) in enumerate(((0.82, 0.9, 0.1, math.nan), (0.4, 0.4, 0.4, math.nan)), start=1):
        rows += [Row(r, "global", "test", "accuracy", whole, n=100)]
        counts = zip(classes, (90, 10, 0), strict=True)
        rows += [
            Row(r, "global", "test", "accuracy", value, class_=c, n=n) for c, (value, n) in enumerate(counts)
        ]
    found, runs = item(tmp_path, {"FedAvg": rows, "FedMR": curve([0.5], 1)}, "balanced_best")
    where = "CIFAR10 (100,5)"
    assert cell_values(found, ("FedAvg", where), runs) == {0: pytest.approx(50.0)}
    assert cell_values(found, ("FedAvg", where), runs, "balanced_last") == {0: pytest.approx(40.0)}
    assert cell_values(found, ("FedMR", where), runs) == {}  # without rows of classes
