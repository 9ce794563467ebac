"""What stands beside a paper's table: rounds with their speed-up and traffic, gains, forgetting, cost and the
strengths of the terms.
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
from raffed.analysis.reproduction.claims import ClaimResult, claim_results
from raffed.analysis.reproduction.differences_first import first_sentence
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.reproduction.item_views import item_view
from raffed.analysis.reproduction.term_strength import untested, weak_terms
from raffed.analysis.reproduction.verdict_rows import verdict_rows
from raffed.analysis.reproduction.verdicts import paper_table
from raffed.analysis.runs.load import Runs
from raffed.analysis.table import TextTable

from raffed.results.metric import Row
from raffed.results.metrics import TERM_STRENGTH, TEST_ACCURACY
from tests.analysis.conftest import write_rows, written_item

Written = tuple[Reproduction, Runs]


def item(folder: Path, rows: Mapping[str, Sequence[Row]], measure: str, **about: Any) -> Written:
    """An item whose rows have these rows of Parquet, of one column where none is named ("row | column");
    config: split and seed alike.
    """
    cells = []
    for name, found in rows.items():
        config = {"method": name.lower(), "federation": {"rounds": 3, "participation": 0.2}}
        split = about.get("split", "equal:10:5")
        write_rows(folder / name, found, config, split, clients=10, partition_sha256="ab")
        for part in (folder / name / "metrics").iterdir():  # of a whole run, so its name begins with round 1
            part.rename(part.with_name(f"part-000001-{part.stem.rpartition('-')[2]}.parquet"))
        row, _, column = name.partition(" | ")
        cell = {"row": row, "column": column or "CIFAR10 (100,5)", "runs": [name]}
        cell["printed"] = {**about["printed"], "method": name} if "printed" in about else {}
        cells.append(cell | ({"measure": about["own"][name]} if name in about.get("own", {}) else {}))
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
    round together. Speed-up 3/2 and 2 rounds · 2 MB; FedAvg: all its 3 rounds; the paper's 116 rounds, 1.72
    and 139.2 MB of FedProx stand beside.
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


def test_who_loses_and_who_gains_is_counted_client_by_client_against_the_baseline(tmp_path: Path) -> None:
    """Clients gain +0.1, −0.05, 0 and +0.2: two gain, one loses; an earlier survey does not count. Of the
    baseline against itself nobody does.
    """
    scores = {"SOLO": [0.5, 0.5, 0.5, 0.5], "Ours": [0.6, 0.45, 0.5, 0.7]}
    rows = {
        name: [between(3, i, value) for i, value in enumerate(values)] + [between(1, 0, 0.01)]
        for name, values in scores.items()
    }
    found, runs = item(tmp_path, rows, "between_last", baseline="SOLO", picture="gain_bars")
    where, measures = "CIFAR10 (100,5)", ("losing_last", "gaining_last")
    assert [cell_values(found, ("Ours", where), runs, one) for one in measures] == [{0: 25.0}, {0: 50.0}]
    assert [cell_values(found, ("SOLO", where), runs, one) for one in measures] == [{0: 0.0}] * 2

    bars, curves = (
        item_view(found._replace(about={**found.about, "picture": picture}), runs)
        for picture in ("gain_bars", "gain_curves")
    )
    assert bars.tables["Who gains"].rows == [["Ours", where, "1", "4", "+6.25", "2", "1", "50"]]
    assert "1 of 4 lose" in svg(bars.figures[0].figure)
    assert "Ours: 50 % gain" in svg(curves.figures[0].figure)


def column(table: TextTable, title: str) -> list[str]:
    return [line[list(table.titles).index(title)] for line in table.rows]


def test_stages_are_drawn_with_the_drop_and_what_is_forgotten(tmp_path: Path) -> None:
    """A_sel falls from 0.9 to 0.6; client 0 forgets 0.9 − 0.5 of stage 1. CReFF is read off its global model.
    MAP's first stage was not evaluated.
    """

    def staged(*values: float, first: int = 1) -> list[Row]:
        rounds = enumerate(values, first)
        return [Row(r, "personal", "local_test", "accuracy", value, stage=r - 1, n=2) for r, value in rounds]

    own = staged(0.9, 0.6)
    for r, value in ((1, 0.9), (2, 0.5)):
        own.append(Row(r, "personal", "local_test", "accuracy_stage0", value, client=0, stage=r - 1, n=9))
    whole = [between(r, None, value, "global")._replace(stage=r - 1) for r, value in ((1, 0.8), (2, 0.7))]
    rows = {"FedAvg": own, "CReFF": own + whole, "MAP": staged(0.75, first=2)}
    about = {"split": "stages:10:4:2:if5", "picture": "stages", "own": {"CReFF": "a_sel_global"}}
    found, runs = item(tmp_path, rows, "a_sel", **about)
    assert column(paper_table(found, runs), "Ours") == ["60.00", "70.00", "75.00"]
    view = item_view(found, runs)
    assert [line[2:] for line in view.tables["What is forgotten"].rows] == [
        ["90.00", "60.00", "30.00", "40.00"],
        ["80.00", "70.00", "10.00", "–"],
        ["–", "75.00", "–", "–"],
    ]
    (drawn,) = view.figures
    last = drawn.figure.axes[0].get_lines()[2]
    assert list(last.get_xdata()) == [1, 2]
    assert list(last.get_ydata()) == pytest.approx([math.nan, 0.75], nan_ok=True)


def test_cost_has_the_mean_over_the_data_sets_that_all_methods_have(tmp_path: Path) -> None:
    """a: 2 s, 3 million numbers (3 models) and 50 % on SVHN, 4 s, 4 million (4 models) and 70 % on FMNIST,
    where it has a second column like the first, and CIFAR10 to itself. b: 1 s, 1 million, 40 % and 60 %.
    """

    def run(seconds: float, held: float, accuracy: float) -> list[Row]:
        floats = {"floats_model": 1e6, "floats_training": held, "floats_kept": 0.0}
        return [
            Row(1, "global", "test", "accuracy", accuracy, n=9),
            Row(2, "local", "train", "loss", 1.0, client=0, n=100, seconds=seconds),
            *(Row(2, "local", "train", name, value) for name, value in floats.items()),
        ]

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
    cost = {(row[0], row[1]): row[2:] for row in view.tables["Cost"].rows}
    assert cost["a", "SVHN"] == ["2.000", "20000", "3.000", "3.00", "0.000", "50.00"]
    assert cost["a", "mean of 2"] == ["3.000", "30000", "3.500", "3.50", "0.000", "60.00"]
    assert cost["b", "mean of 2"] == ["1.000", "10000", "1.000", "1.00", "0.000", "50.00"]
    assert ">mean of 2<" in svg(view.figures[0].figure)


def test_balanced_accuracy_is_the_mean_over_classes_with_test_samples(tmp_path: Path) -> None:
    """Classes 0.9, 0.1 and one without samples: 0.5, though 90 of 100 samples are of the first; then 0.4
    and 0.4: 0.4.
    """
    rows = []
    for r, (whole, *classes) in enumerate(((0.82, 0.9, 0.1, math.nan), (0.4, 0.4, 0.4, math.nan)), start=1):
        rows.append(Row(r, "global", "test", "accuracy", whole, n=100))
        for c, (value, n) in enumerate(zip(classes, (90, 10, 0), strict=True)):
            rows.append(Row(r, "global", "test", "accuracy", value, class_=c, n=n))
    found, runs = item(tmp_path, {"FedAvg": rows, "FedMR": curve([0.5], 1)}, "balanced_best")
    where = "CIFAR10 (100,5)"
    assert cell_values(found, ("FedAvg", where), runs) == {0: pytest.approx(50.0)}
    assert cell_values(found, ("FedAvg", where), runs, "balanced_last") == {0: pytest.approx(40.0)}
    assert cell_values(found, ("FedMR", where), runs) == {}  # without rows of classes


Both = tuple[float, float]  # strengths at the start and at the end


def rows(accuracy: float, terms: Mapping[str, Both]) -> list[Row]:
    """The rows of one run of three rounds; in the first one the clients have received nothing yet."""
    found = [TEST_ACCURACY.row(3, accuracy, n=100)]
    for name, both in terms.items():
        for (model, metric), value in zip(TERM_STRENGTH.items(), both, strict=True):
            assert model in ("global", "local")
            found += [
                metric.row(number, 0.0 if number == 1 else value, part=name, n=5) for number in (1, 2, 3)
            ]
    return found


def measured(folder: Path, methods: Mapping[str, Mapping[str, Both]], **about: Any) -> Written:
    """An item with FedAvg and these methods in the column c, one run each, claimed above in c's mean m."""
    written = {"FedAvg | c": rows(0.5, {})}
    written |= {f"{name} | c": rows(0.6, terms) for name, terms in methods.items()}
    found, runs = item(folder, written, "accuracy_last", **about)
    claims = [
        {"text": f"{name} above", "terms": [[1.0, name, "m"], [-1.0, "FedAvg", "c"]], "within": 50.0}
        for name in methods
    ]
    more = {"scale": "proxy", "claims": claims, "averages": [{"column": "m", "of": ["c"], "printed": {}}]}
    for cell in found.about["cells"]:
        cell["printed"] = {"value": 50 if cell["row"] == "FedAvg" else 60}
    return found._replace(about={**found.about, **more}), runs


@pytest.mark.parametrize(
    ("terms", "weak"),
    [
        ({"pull": (0.0, 0.099)}, ["pull"]),
        ({"pull": (0.0, 0.1)}, []),
        ({"pull": (float("nan"), 0.01)}, ["pull"]),
        ({"intra": (0.3, 0.8), "inter": (0.01, 0.02)}, ["inter"]),
    ],
)
def test_a_term_is_weak_if_its_mean_is_below_5_per_cent(terms: dict[str, Both], weak: list[str]) -> None:
    assert weak_terms(terms) == weak


METHODS = {
    "Off": {"intra": (0.01, 0.03)},
    "On": {"intra": (0.2, 0.9)},
    "Half": {"intra": (0.2, 0.9), "inter": (0.001, 0.02)},
}


def test_a_setting_is_no_test_if_all_of_its_terms_are_weak_and_no_claim_about_it_holds_or_fails(
    tmp_path: Path,
) -> None:
    found, runs = measured(tmp_path, METHODS)
    assert untested(found, runs) == {("Off", "c"): "intra"}
    words = {line[0]: line for line in paper_table(found, runs).rows}
    assert {name for name, line in words.items() if "no test" in line} == {"Off"}
    table = item_view(found, runs).tables["Strength of the terms"]
    assert [(line[0], line[2], line[-1]) for line in table.rows] == [
        ("Off", "intra", "no test of it"),
        ("On", "intra", "strong enough"),
        ("Half", "inter", "no test of it"),
        ("Half", "intra", "strong enough"),
    ]
    assert table.rows[0][3:5] == ["1.0", "3.0"]  # the first round, which has nothing yet, does not count
    assert first_sentence(found, runs).startswith("Of 2 printed differences to FedAvg"), "without that of Off"
    claims = claim_results(found, runs)
    assert claims[0].strengths == "Off: intra 2.0 %"
    assert verdict_rows(found, runs)[-3]["term_strength"] == {"Off, c: intra": 0.02}
    said = {one.text: one.no_test for one in claims}
    why = "no test: the terms of Off are below 5 %"
    assert said == {"On above": "", "Half above": "", "Off above": why}
    assert ClaimResult("", [1.0, 1.1, 0.9], no_test=why).verdict == why
