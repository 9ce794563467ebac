"""What stands beside a paper's table: rounds with their speed-up and traffic, gains, forgetting, cost,
strengths of the terms; what it is answered by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.figures.theme import svg
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.equivalence import PrintedNumber
from raffed.analysis.reproduction.cell_values import cell_values
from raffed.analysis.reproduction.claims import ClaimResult, claim_results, tally
from raffed.analysis.reproduction.item_runs import Reproduction
from raffed.analysis.reproduction.item_views import item_view
from raffed.analysis.reproduction.term_strength import untested, weak_terms
from raffed.analysis.reproduction.verdicts import Line, paper_table
from raffed.analysis.runs.load import Runs
from raffed.analysis.table import TextTable
from raffed.reproductions.pages.findings import findings, gain_table, judged

from raffed.results.metric import Row
from raffed.results.metrics import TERM_STRENGTH, TEST_ACCURACY
from raffed.results.runfile import write_json
from raffed.results.writer import MetricsWriter
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
        federation = {"rounds": 3, "participation": 0.2}
        config = {"method": name.lower(), "data": {"dataset": "digits"}, "federation": federation}
        run = {"run_id": name, "state": "finished", "config": config, "clients": 10, "partition_sha256": "ab"}
        write_json(folder / name / "run.json", run)
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
    alone = Reproduction(found.folder, {**found.about, "baseline": "Nobody"})
    assert cell_values(alone, ("Ours", where), runs, "losing_last") == {}
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


def test_a_table_says_what_a_measure_is_answered_by_and_of_how_many_clients(tmp_path: Path) -> None:
    oracle = [Row(3, "global", "local_test", "accuracy_oracle", 0.4, n=10), between(3, None, 0.9)]
    own = [Row(3, "personal", "local_test", "accuracy", 0.5, client=i, n=10) for i in range(7)]
    rows = {"FedAvg": [between(3, None, 0.3, "global")], "FedRep": oracle + own}
    found, runs = item(tmp_path, rows, "a_glo")
    table = paper_table(found, runs)
    assert column(table, "Ours") == ["30.00", "40.00"]
    assert column(table, "Answered by") == ["global model", "oracle: mean of the heads"]
    local = paper_table(found._replace(about={**found.about, "measure": "a_loc"}), runs)
    assert column(local, "Clients measured, at least") == ["–", "7 of 10"]
    mixed = paper_table(*item(tmp_path / "mixed", rows, "a_glo", own={"FedRep": "a_loc"}))
    assert column(mixed, "Clients measured, at least / Answered by") == ["global model", "7 of 10"]
    proxy = found._replace(about={**found.about, "scale": "proxy"})
    titles = ["Method", "Column", "Ours", "Seeds", "Ours − FedAvg", "Answered by"]
    assert paper_table(proxy, runs).titles == titles, "where nothing is printed nothing is compared with it"


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


def test_final_accuracy_stands_against_the_number_in_its_column(tmp_path: Path) -> None:
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


def test_bars_are_grouped_by_the_last_word_of_a_column_and_keep_their_place(tmp_path: Path) -> None:
    """Three methods in two groups of one panel and one of another; in group IF50 the second one has no
    run.
    """
    values = {"a | d [4] IF10": 0.1, "b | d [4] IF10": 0.2, "c | d [4] IF10": 0.3}
    values |= {"a | d [4] IF50": 0.4, "c | d [4] IF50": 0.5, "b | d [5] IF10": 0.6}
    rows = {name: [between(3, None, value, "global")] for name, value in values.items()}
    found, runs = item(tmp_path, rows, "a_glo", picture="bars")
    (drawn,) = item_view(found, runs).figures
    four, five = drawn.figure.axes[:2]
    assert (four.get_title(loc="left"), five.get_title(loc="left")) == ("d [4]", "d [5]")
    width = 0.8 / 3
    wanted = [(-0.4, 0.1), (-0.4 + width, 0.2), (-0.4 + 2 * width, 0.3), (0.6, 0.4), (0.6 + 2 * width, 0.5)]
    assert [(bar.get_x(), bar.get_height()) for bar in four.patches] == [pytest.approx(one) for one in wanted]
    assert [bar.get_height() for bar in five.patches] == [0.6]
    assert [label.get_text() for label in four.get_xticklabels()] == ["IF10", "IF50"]
    colours = [bar.get_facecolor() for bar in four.patches]
    assert colours[0] == colours[3] != colours[1]


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
    """An item with FedAvg and these methods in the column c, one run each, with claims that each is above."""
    written = {"FedAvg | c": rows(0.5, {})}
    written |= {f"{name} | c": rows(0.6, terms) for name, terms in methods.items()}
    found, runs = item(folder, written, "accuracy_last", **about)
    claims = [
        {"text": f"{name} above", "terms": [[1.0, name, "c"], [-1.0, "FedAvg", "c"]], "within": 50.0}
        for name in methods
    ]
    return found._replace(about={**found.about, "scale": "proxy", "claims": claims}), runs


@pytest.mark.parametrize(
    ("terms", "weak"),
    [
        ({"pull": (0.0, 0.099)}, ["pull"]),
        ({"pull": (0.0, 0.1)}, []),
        ({"pull": (0.06, 0.01)}, ["pull"]),
        ({"pull": (0.08, 0.04)}, []),
        ({"pull": (float("nan"), 0.01)}, ["pull"]),
        ({"pull": (float("nan"), float("nan"))}, []),
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


def test_one_round_in_which_a_term_is_huge_does_not_make_it_strong(tmp_path: Path) -> None:
    """Where the cross-entropy is all but 0, the ratio to it is huge: 100 in one of five rounds, 0.01 else."""
    spiked = [
        metric.row(number, value, part="intra", n=5)
        for metric in TERM_STRENGTH.values()
        for number, value in enumerate((0.0, 0.01, 100.0, 0.01, 0.01), 1)
    ]
    written = {"FedAvg | c": [TEST_ACCURACY.row(5, 0.5, n=100)]}
    written["FedMR | c"] = [TEST_ACCURACY.row(5, 0.6, n=100), *spiked]
    assert untested(*item(tmp_path, written, "accuracy_last")) == {("FedMR", "c"): "intra"}


def test_a_setting_is_no_test_if_all_of_its_terms_are_weak(tmp_path: Path) -> None:
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


def test_a_claim_about_such_a_setting_neither_holds_nor_fails(tmp_path: Path) -> None:
    said = {one.text: one.no_test for one in claim_results(*measured(tmp_path, METHODS))}
    why = "no test: the terms of Off are below 5 %"
    assert said == {"On above": "", "Half above": "", "Off above": why}
    assert ClaimResult("", [1.0, 1.1, 0.9], no_test=why).verdict == why
    assert ClaimResult("", [], no_test=why).verdict == "not run"
    other = "no test: the terms of B are below 5 %"
    assert tally(["fails", why, other]) == "3 claims: no test 2, fails 1"


def test_findings_show_each_gain_beside_the_strength_of_the_terms_by_any_measure(tmp_path: Path) -> None:
    """Strong is above FedAvg in the last round, and below it in each one's best."""
    falls = [TEST_ACCURACY.row(number, value, n=100) for number, value in ((1, 0.8), (2, 0.7), (3, 0.5))]
    strong = [TEST_ACCURACY.row(1, 0.1, n=100), TEST_ACCURACY.row(2, 0.2, n=100)]
    written = {
        "FedAvg | c": falls,
        "Strong | c": [*strong, *rows(0.6, {"pull": (0.2, 0.5)})],
        "Weak | c": rows(0.6, {"pull": (0.01, 0.02)}),
    }
    found, runs = item(tmp_path, written, "accuracy_last")
    table = gain_table(found._replace(about={**found.about, "scale": "proxy"}), runs)
    told = {line[0]: line[4:] for line in table.rows}
    assert told["FedAvg"][-1] == "baseline"
    assert told["Strong"] == ["+10.00", "pull 20.0 %, 50.0 %", "too few seeds"]
    assert told["Weak"][-1] == "no test"
    assert "| +10.00 |" in findings([tmp_path])
    assert "| −20.00 |" in findings([tmp_path], "accuracy_best")


@pytest.mark.parametrize(
    ("gains", "terms", "word"),
    [
        ([1.0, 1.1, 0.9], {"pull": (0.2, 0.5)}, "above"),
        ([-1.0, -1.1, -0.9], {"pull": (0.2, 0.5)}, "below"),
        ([-1.0, 1.1, 0.9], {"pull": (0.2, 0.5)}, "not separated"),
        ([1.0, 1.0, 1.0], {"pull": (0.2, 0.5)}, "not separated"),
        ([1.0, 1.1, 0.9], {"pull": (0.2, 0.5), "push": (0.0, 0.0)}, "above"),
        ([1.0, 1.1, 0.9], {"pull": (0.01, 0.02)}, "no test"),
        ([1.0, 1.1], {"pull": (0.2, 0.5)}, "too few seeds"),
    ],
)
def test_what_a_finding_needs_is_judged(gains: list[float], terms: dict[str, Both], word: str) -> None:
    line = Line("FedMR", "Dir 0.05", PrintedNumber(math.nan), gains, math.nan, gains)
    assert judged(line, terms, "FedAvg") == word
