"""The numbers of a summary, worked out by hand, and how they are shown: text, LaTeX, own metrics and names,
heads.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis import load_runs, summary, to_html, to_latex, to_text, write_report
from raffed.analysis.figures.curves import panel_figure
from raffed.analysis.figures.series import charts
from raffed.analysis.heading import heading
from raffed.analysis.metrics.intervals import t_interval
from raffed.analysis.metrics.measures import measures
from raffed.analysis.metrics.own_metrics import own_columns, own_measures
from raffed.analysis.metrics.summary import cells
from raffed.analysis.render.cells import for_latex
from raffed.analysis.render.latex_characters import LATEX
from raffed.analysis.reproduction.matrix import Matrix, MatrixCell
from raffed.analysis.reproduction.matrix_text import matrix_latex
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.load import read_runs
from raffed.analysis.runs.method_names import METHOD_NAMES
from raffed.analysis.table import TextTable, as_latex

import raffed
from raffed.methods import METHODS, method_info
from raffed.results.metrics import CALIBRATION, METRICS, SPREAD, TEST_ACCURACY, WORST_DECILE
from raffed.results.runfile import write_json
from raffed.results.writer import MetricsWriter, read_metrics
from tests.analysis.changed_run import change
from tests.analysis.conftest import WriteRun


def test_the_interval_of_three_values_is_4_303_standard_errors() -> None:
    """For ν = 2 the t distribution has a closed form: P(|T| <= t) = t/√(2 + t²), so t = √(2·0.95²/(1 -
    0.95²)), and 1, 2, 3 have s = 1. For ν = 1, P(|T| <= t) = 2·atan(t)/π; 0 and 2 have s/√n = 1.
    """
    t = math.sqrt(2 * 0.95**2 / (1 - 0.95**2))
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx(t / math.sqrt(3), rel=1e-9)
    assert t_interval([0.0, 2.0]) == pytest.approx(math.tan(0.95 * math.pi / 2), rel=1e-9)
    assert math.isnan(t_interval([0.5]))


def test_the_measures_of_a_run_are_what_its_rows_say(write_run: WriteRun) -> None:
    """Accuracies 0.01 … 0.11, then 0.9, 0.2. Last ten: 0.04 … 0.11, 0.9, 0.2, sum 0.6 + 1.1 = 1.7."""
    accuracies = [r / 100 for r in range(1, 12)] + [0.9, 0.2]
    write_run("a", accuracies, personal=[0.7] * 12 + [0.8], seconds=0.25)
    (row,) = summary(write_run.load()).to_dict("records")
    assert row["accuracy_last"] == pytest.approx(0.2)
    assert row["accuracy_best"] == pytest.approx(0.9)
    assert row["accuracy_mean10"] == pytest.approx(0.17)
    assert row["personal_last"] == pytest.approx(0.8)
    assert (row["mb_up"], row["mb_down"], row["seconds_round"]) == (2.0, 4.0, 0.25)
    assert (row["rounds_done"], row["state"], row["seeds"]) == (13, "finished", 1)


@pytest.mark.parametrize(("rounds", "last"), [(1, 1), (4, 1), (10, 2), (200, 40)])
def test_the_last_fifth_is_the_same_part_of_every_run(write_run: WriteRun, rounds: int, last: int) -> None:
    write_run("a", [number / 1000 for number in range(rounds)])
    value = measures(write_run.load())["accuracy_mean_fifth"].item()
    assert value == pytest.approx((rounds - 1 - (last - 1) / 2) / 1000)


def test_seeds_are_averaged_with_their_interval(write_run: WriteRun) -> None:
    """0.5, 0.6, 0.7: mean 0.6, s = 0.1, half width 4.30265·0.1/√3 = 0.24841."""
    for seed, accuracy in enumerate([0.5, 0.6, 0.7]):
        write_run(f"s{seed}", [0.1, accuracy], seed=seed)
    (row,) = summary(write_run.load()).to_dict("records")
    assert row["seeds"] == 3
    assert row["accuracy_last"] == pytest.approx(0.6)
    assert row["accuracy_last_ci"] == pytest.approx(0.24841, abs=1e-5)
    assert math.isnan(row["personal_last"]), "no run measured a personal model"
    assert "60.00 ± 24.84" in to_text(summary(write_run.load()))


def test_a_mean_of_fewer_seeds_than_the_row_has_says_so(write_run: WriteRun) -> None:
    """Personal models were evaluated with three of the five seeds."""
    for seed in range(5):
        personal = [0.6 + 0.01 * seed] if seed < 3 else None
        write_run(f"r{seed}", [0.5], personal=personal, seed=seed)
    titles, rows = cells(summary(write_run.load()))
    shown = dict(zip(titles, rows[0], strict=True))
    assert shown["Seeds"] == "5"
    assert shown["Personalization, last %"].endswith("(of 3)")
    assert "(of" not in shown["Aggregation, last %"]


def test_the_columns_of_the_text_table_line_up_and_a_run_without_rows_has_dashes(write_run: WriteRun) -> None:
    write_run("a", [1.0], method="a_method_with_a_long_name")
    write_run("b", [], planned=5, state="failed", method="b")
    table = summary(write_run.load())
    title, first, second = to_text(table).splitlines()
    dashes = ["–"] * 7
    assert second.split()[:13] == ["b", "digits", "p10c2", "1", *dashes, "0/5", "failed"]
    right = title.index("best %") + len("best %")
    assert (first[:right].endswith(" 100.00"), second[:right].endswith(" –")) == (True, True)
    assert title.index("Data set") == first.index("digits") == second.index("digits")
    assert "<strong>" not in to_html(table)
    each = summary(write_run.load(), over_seeds=False)
    assert list(zip(each["run"], each["seed"], each["state"], strict=True)) == [
        ("a", 0, "finished"),
        ("b", 0, "failed"),
    ]


@pytest.mark.parametrize(
    ("changed", "uploads"),
    [
        ({}, 5),
        ({"federation.unseen_clients": 0.2}, 4),  # half of the eight that train
        ({"clock.server": "waits"}, 5),
        ({"clock.server": "fedbuff", "clock.buffer": 2}, 2),
        ({"clock.server": "fedasync"}, 1),
    ],
)
def test_a_client_sends_its_share(write_run: WriteRun, changed: dict[str, object], uploads: int) -> None:
    """Of ten clients half take part. A round uploads 2 MB, which is half a million numbers of four bytes."""
    folder = write_run("a", [0.5], clients=10)
    for name, value in {"federation.participation": 0.5, **changed}.items():
        change(folder, f"config.{name}", value)
    assert measures(write_run.load())["floats_up"].item() == pytest.approx(0.5 / uploads)


def trained(*epochs: float, steps: float, **more: Any) -> dict[str, Any]:
    return {"shared": [{"epochs": one} for one in epochs], "overridden": {}, "steps": steps} | more


def test_how_long_clients_train_stands_in_the_table_where_methods_differ(
    tmp_path: Path, write_run: WriteRun
) -> None:
    given = {"momentum": {"given": 0.9, "used": 0.0}, "schedule": {"given": "cosine", "used": None}}
    write_run("a", [0.3], effective=trained(1, steps=2.5))
    write_run("a1", [0.3], seed=1, effective=trained(1, steps=3.5))
    write_run("b", [0.4], method="gldp", effective=trained(10, 20, steps=69, overridden=given))
    write_run("c", [0.5], method="map", effective=trained(1, steps=3, private={}))
    titles, lines = cells(summary(write_run.load()))
    at = titles.index("Local epochs")
    assert titles[at : at + 4] == ["Local epochs", "Steps/round", "Overrides", "Rounds"]
    assert {line[0]: line[at : at + 3] for line in lines} == {
        "fedavg": ["1", "3", "none"],
        "gldp": ["10 + 20", "69", "momentum = 0.0, schedule = own rule"],
        "map": ["1 + private", "3", "none"],
    }
    assert "The same for every row" not in write_report([tmp_path], tmp_path / "out").read_text()


@pytest.mark.parametrize("own", ["fedamp", "./mine.py:mine"])
def test_a_table_says_what_is_scored_where_a_method_is_scored_before_training(
    tmp_path: Path, write_run: WriteRun, own: str
) -> None:
    """When a method of the user's own is scored is not known."""
    write_run("a", [0.3])
    write_run("b", [0.4], method=own)
    assert "Scored" not in cells(summary(write_run.load()))[0]
    write_run("c", [0.5], method="ifca")
    titles, lines = cells(summary(write_run.load()))
    at = titles.index("Scored")
    assert {line[0]: line[at] for line in lines} == {
        "fedavg": "after training",
        own: "after training" if own == "fedamp" else "–",
        "ifca": "before training",
    }
    assert ">Scored<" in write_report([tmp_path], tmp_path / "out").read_text()


def test_what_all_methods_have_in_common_is_a_sentence_and_what_is_not_recorded_is_not_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.3], effective=trained(2, steps=5))
    other = write_run("b", [0.4], method="map", effective=trained(2, steps=5))
    page = write_report([tmp_path], tmp_path / "out").read_text()
    assert "The same for every row: local epochs 2, steps/round 5, overrides none." in page
    assert ">Local epochs<" not in page
    change(other, "effective", {})
    assert "The same for every row" not in write_report([tmp_path], tmp_path / "out").read_text()
    change(tmp_path / "a", "effective", {})
    assert not {"Local epochs", "Overrides"} & {*cells(summary(write_run.load()))[0]}


def runs_in(folder: Path, asked: str) -> list[Path]:
    """Two runs of FedAvg, which differ in their seeds."""
    for seed in range(2):
        config = raffed.RunConfig(
            data=raffed.Data(split="iid:4", local_test=0.2),
            model=raffed.Model("mlp", {"hidden": [8]}),
            federation=raffed.Federation(rounds=2, measures=asked),
            runtime=raffed.Runtime(execution="serial"),
            seed=seed,
        )
        raffed.run(config, folder / f"seed-{seed}")
    return [folder / f"seed-{seed}" for seed in range(2)]


def test_the_summary_has_the_means_of_what_was_asked_for_and_no_column_if_nothing_was(tmp_path: Path) -> None:
    columns = {"calibration": CALIBRATION, "worst_decile_personal": WORST_DECILE["personal"]}
    columns["spread_global"] = SPREAD["global"]
    titles = (
        "calibration error %",
        "worst tenth of the last participants, personal %",
        "spread over clients, global %",
    )
    places = runs_in(tmp_path / "asked", "calibration,fairness")
    [row] = summary(read_runs([tmp_path])).to_dict("records")
    for column, metric in columns.items():
        tables = (read_metrics(place).to_pandas() for place in places)
        values = [
            rows[(rows["metric"] == metric.name) & (rows["model"] == metric.model)]["value"].item()
            for rows in tables
        ]
        assert row[column] == pytest.approx(sum(values) / 2)
        assert row[f"{column}_seeds"] == 2
    shown, [line] = cells(summary(read_runs([tmp_path])))
    assert set(titles) <= set(shown)
    assert line[shown.index(titles[0])] == f"{100 * row['calibration']:.2f}"
    runs_in(tmp_path / "plain", "")
    assert not set(titles) & set(cells(summary(read_runs([tmp_path / "plain"])))[0])


def test_a_method_is_shown_by_its_title_with_its_reference(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.3])
    write_run("b", [0.4], method="./prox.py:myprox", title='My "Prox"')
    runs = write_run.load()
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


@pytest.mark.parametrize("title", ["FedAvg", "./prox.py:other", "", "Other"])
def test_a_title_of_another_method_does_not_stand_for_it(write_run: WriteRun, title: str) -> None:
    write_run("b", [0.4], method="./prox.py:myprox", title=title)
    write_run("c", [0.4], method="./prox.py:other", title="Other")
    labels = [group.label for group in groups(write_run.load().called(METHOD_NAMES))]
    assert "./prox.py:myprox" in labels


def test_metrics_of_one_name_and_two_directions_have_columns_of_their_own(tmp_path: Path) -> None:
    """Two people call other things by one name; a run's value is in the column of its own metric alone.
    That of the last round is NaN for c, and no earlier one stands for it.
    """
    metric = METRICS.admit(replace(TEST_ACCURACY, name="mine"))
    config = {"method": "fedavg", "data": {"dataset": "digits", "split": "p10c2"}}
    for name, better, values in (
        ("a", "higher", [0.75]),
        ("b", "lower", [0.25]),
        ("c", "lower", [0.9, math.nan]),
    ):
        writer = MetricsWriter(tmp_path / name, name, "fedavg", "digits", "p10c2", 0)
        writer.add([metric.row(number, value, n=9) for number, value in enumerate(values, 1)])
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


def part(started: str, command: str = "", raffed: str = "0.1.0") -> dict[str, Any]:
    about = {"from": 1, "to": 1, "started": started, "versions": {"raffed": raffed}, "said": []}
    return about | ({"command": command} if command else {})


def test_a_report_says_what_was_run_when_and_with_what(tmp_path: Path, write_run: WriteRun) -> None:
    early, late = "2026-11-25T10:12:33+00:00", "2026-11-26T07:00:01+00:00"
    both = "raffed compare --method fedavg --method map"
    write_run("a", [0.5], segments=[part(late, both)], commit="0123456789abcdef+")
    write_run("b", [0.5], method="map", segments=[part(early, both), part(late, "raffed resume b", "0.2.0")])
    write_run("c", [0.5], method="map", seed=1, versions={"raffed": "0.1.0"}, started=early, commit=None)
    found = heading(write_run.load().called(METHOD_NAMES))
    assert found.title == "FedAvg and MAP on digits · p10c2"
    assert found.when == "2026-11-25 10:12 UTC to 2026-11-26 07:00 UTC"
    assert found.versions == [
        "raffed 0.1.0, commit 0123456789+",
        "raffed 0.2.0, commit 0123abc",
        "raffed 0.1.0",
    ]
    assert found.commands == [both, "raffed resume b"]
    assert found.unnamed == 1
    write_run("trial", [0.5], seed=2, segments=[part("2026-11-24T10:12:33+00:00", "raffed tune --out s")])
    continued = heading(write_run.load().without(["trial"]), whole=write_run.load())
    assert continued.commands[0] == "raffed tune --out s"
    page = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "out").read_text(encoding="utf-8")
    assert "<h1>FedAvg and MAP on digits · p10c2</h1>" in page
    assert f"<code>{both}</code>" in page
    assert "<title>FedAvg and MAP on digits · p10c2 – raffed report</title>" in page


def test_the_names_of_methods_are_those_of_the_methods() -> None:
    assert {name: method_info(name).title for name in METHODS} == METHOD_NAMES


def test_a_chart_has_the_values_and_the_looks_of_its_picture(write_run: WriteRun) -> None:
    for seed in (0, 1):
        write_run(f"s{seed}", [0.25, 0.5 + seed / 4], seed=seed)
    figure = panel_figure(write_run.load(), ("digits", "p10c2"), "Aggregation accuracy")
    assert figure is not None
    ((chart,), (one,)) = (charts(figure), charts(figure)[0].series)
    assert (chart.below, chart.points, chart.percent_below) == ("Round", False, False)
    assert (one.label, one.colour, one.marker, one.dashed) == ("fedavg", 0, "o", False)
    assert (one.x, one.y, one.low, one.high) == ([1, 2], [0.25, 0.625], [0.25, 0.5], [0.25, 0.75])


NAMES = ["[a]", "*", "50 % & more", "θ < 1 | ‖w‖² > ½ η₀", "Šimon", "a_b\\c^2~{d}#$", "‘1’ “2”"]


def compiles(folder: Path, table: str) -> str:
    """Compile a document with nothing but a table, and return the log."""
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}"
    (folder / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, errors="replace")
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if line.startswith("!")]
    return done.stdout


def test_signs_that_the_usual_font_prints_as_others_are_written_as_commands() -> None:
    assert for_latex("a < b | c > d") == r"a \textless{} b \textbar{} c \textgreater{} d"
    assert for_latex("θ₁ → ∞") == r"$\theta$$_{1}$ $\rightarrow$ $\infty$"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (texlive-latex-recommended)")
def test_pdflatex_prints_every_character_and_every_kind_of_table(tmp_path: Path, write_run: WriteRun) -> None:
    every = TextTable(["Name", "Cell"], [[name, f"1 {name} 2"] for name in [*LATEX, *NAMES]])
    assert "Missing character" not in compiles(tmp_path, rf"\tiny {as_latex(every)}")
    for seed, method in enumerate(("fedavg", "fedprox")):
        write_run(method, [0.5], method=method, seed=seed)
    compiles(tmp_path, rf"\tiny {to_latex(summary(write_run.load()))}")
    cells = [MatrixCell("86.20 ± 0.40", "+1.90", "agrees"), MatrixCell("", "88.40", "–", note="a")]
    matrix = Matrix(
        "Ours, 50 % printed", ["FedAvg", "α & β"], ["FaMnist MLPNet", "FaMnist LeNet"], [cells, cells], {}, {}
    )
    compiles(tmp_path, matrix_latex(matrix, "Table I, 100 %"))
