"""The numbers of a summary, worked out by hand, how they are shown, and what each method has by every
protocol that papers have.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis import load_runs, summary, to_text, write_report
from raffed.analysis.heading import heading
from raffed.analysis.metrics.intervals import t_interval
from raffed.analysis.metrics.measures import measures
from raffed.analysis.metrics.own_metrics import own_measures
from raffed.analysis.metrics.protocols import Protocols, protocol_table
from raffed.analysis.metrics.summary import cells
from raffed.analysis.render.cells import for_latex
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.method_names import METHOD_NAMES

from raffed.methods import METHODS, method_info
from raffed.results.metric import Row
from raffed.results.metrics import METRICS, TEST_ACCURACY
from tests.analysis.conftest import WriteRun, change, write_rows


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


def test_metrics_of_one_name_and_two_directions_have_columns_of_their_own(tmp_path: Path) -> None:
    """Two people call other things by one name; a run's value is in the column of its own metric alone.
    That of the last round is NaN for c, and no earlier one stands for it.
    """
    metric = METRICS.admit(replace(TEST_ACCURACY, name="mine"))
    for name, better, values in (
        ("a", "higher", [0.75]),
        ("b", "lower", [0.25]),
        ("c", "lower", [0.9, math.nan]),
    ):
        rows = [metric.row(number, value, n=9) for number, value in enumerate(values, 1)]
        described = [{"name": "mine", "better": better, "unit": "fraction"}]
        write_rows(tmp_path / name, rows, metrics=described)
    found = own_measures(load_runs([tmp_path]))
    assert found["own:mine:global:higher:fraction"].dropna().to_dict() == {"a": 0.75}
    assert found["own:mine:global:lower:fraction"].dropna().to_dict() == {"b": 0.25}


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


def test_signs_that_the_usual_font_prints_as_others_are_written_as_commands() -> None:
    assert for_latex("a < b | c > d") == r"a \textless{} b \textbar{} c \textgreater{} d"
    assert for_latex("θ₁ → ∞") == r"$\theta$$_{1}$ $\rightarrow$ $\infty$"


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
