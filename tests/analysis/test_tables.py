"""The numbers of a summary, worked out by hand, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis import load_runs, summary, to_html, to_latex, to_markdown, to_text
from raffed.analysis.metrics.intervals import t_interval, t_quantile
from raffed.analysis.metrics.measures import measures
from raffed.analysis.metrics.summary import cells

from tests.analysis.changed_run import change

WriteRun = Callable[..., Path]


def test_the_interval_of_three_values_is_4_303_standard_errors() -> None:
    """For ν = 2 the t distribution has a closed form: P(|T| <= t) = t/√(2 + t²), so t = √(2·0.95²/(1 -
    0.95²)).

        1, 2, 3 have s = 1, so the half width is t/√3.
    """
    t = math.sqrt(2 * 0.95**2 / (1 - 0.95**2))
    assert t == pytest.approx(4.30265, abs=1e-5)
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx(t / math.sqrt(3), rel=1e-9)


def test_the_interval_of_two_values_is_that_of_a_cauchy_distribution() -> None:
    """For ν = 1, P(|T| <= t) = 2·atan(t)/π. 0 and 2 have s = √2 and s/√n = 1."""
    assert t_interval([0.0, 2.0]) == pytest.approx(math.tan(0.95 * math.pi / 2), rel=1e-9)


@pytest.mark.parametrize(
    ("freedom", "printed"), [(3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (29, 2.045), (120, 1.980)]
)
def test_the_quantiles_are_those_of_every_textbook_s_table(freedom: int, printed: float) -> None:
    assert t_quantile(freedom) == pytest.approx(printed, abs=5e-4)


def test_one_seed_has_no_interval() -> None:
    assert math.isnan(t_interval([0.5]))


def test_the_measures_of_a_run_are_what_its_rows_say(tmp_path: Path, write_run: WriteRun) -> None:
    """Accuracies 0.01 … 0.11, then 0.9, 0.2. Last ten: 0.04 … 0.11, 0.9, 0.2, sum 0.6 + 1.1 = 1.7."""
    accuracies = [r / 100 for r in range(1, 12)] + [0.9, 0.2]
    write_run("a", accuracies, personal=[0.7] * 12 + [0.8], seconds=0.25)
    (row,) = summary(load_runs([tmp_path])).to_dict("records")
    assert row["accuracy_last"] == pytest.approx(0.2)
    assert row["accuracy_best"] == pytest.approx(0.9)
    assert row["accuracy_mean10"] == pytest.approx(0.17)
    assert row["personal_last"] == pytest.approx(0.8)
    assert (row["mb_up"], row["mb_down"], row["seconds_round"]) == (2.0, 4.0, 0.25)
    assert (row["rounds_done"], row["state"], row["seeds"]) == (13, "finished", 1)


@pytest.mark.parametrize(("rounds", "last"), [(1, 1), (4, 1), (10, 2), (200, 40)])
def test_the_mean_over_the_last_fifth_is_over_the_same_part_of_every_training(
    tmp_path: Path, write_run: WriteRun, rounds: int, last: int
) -> None:
    write_run("a", [number / 1000 for number in range(rounds)])
    value = measures(load_runs([tmp_path]))["accuracy_mean_fifth"].item()
    assert value == pytest.approx((rounds - 1 - (last - 1) / 2) / 1000)


def test_seeds_are_averaged_with_their_interval(tmp_path: Path, write_run: WriteRun) -> None:
    """0.5, 0.6, 0.7: mean 0.6, s = 0.1, half width 4.30265·0.1/√3 = 0.24841."""
    for seed, accuracy in enumerate([0.5, 0.6, 0.7]):
        write_run(f"s{seed}", [0.1, accuracy], seed=seed)
    (row,) = summary(load_runs([tmp_path])).to_dict("records")
    assert row["seeds"] == 3
    assert row["accuracy_last"] == pytest.approx(0.6)
    assert row["accuracy_last_ci"] == pytest.approx(0.24841, abs=1e-5)
    assert math.isnan(row["personal_last"]), "no run measured a personal model"
    assert "60.00 ± 24.84" in to_text(summary(load_runs([tmp_path])))


def test_a_mean_of_fewer_seeds_than_the_row_has_says_so(tmp_path: Path, write_run: WriteRun) -> None:
    """Personal models were evaluated with three of the five seeds."""
    for seed in range(5):
        personal = [0.6 + 0.01 * seed] if seed < 3 else None
        write_run(f"r{seed}", [0.5], personal=personal, seed=seed)
    titles, rows = cells(summary(load_runs([tmp_path])))
    shown = dict(zip(titles, rows[0], strict=True))
    assert shown["Seeds"] == "5"
    assert shown["Personalization, last %"].endswith("(of 3)")
    assert "(of" not in shown["Aggregation, last %"]


def test_unfinished_runs_of_unequal_length_have_no_interval(tmp_path: Path, write_run: WriteRun) -> None:
    for seed, scores in enumerate([[0.5] * 4, [0.1], [0.2] * 2]):
        write_run(f"r{seed}", scores, seed=seed, state="running", planned=50)
    table = summary(load_runs([tmp_path]))
    assert math.isnan(table["accuracy_last_ci"][0])
    titles, rows = cells(table)
    assert rows[0][titles.index("Rounds")] == "1–4/50"


def test_without_grouping_every_run_has_a_row_of_its_own(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5], seed=0)
    write_run("b", [0.6], seed=1)
    write_run("c", [0.7], seed=2, state="failed")
    table = summary(load_runs([tmp_path]), over_seeds=False)
    assert list(zip(table["run"], table["seed"], table["state"], strict=True)) == [
        ("c", 2, "failed"),
        ("b", 1, "finished"),
        ("a", 0, "finished"),
    ]


def test_a_run_without_rows_has_dashes_and_not_zeros(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [], planned=5, state="failed")
    assert to_text(summary(load_runs([tmp_path]))).splitlines()[1].split() == (
        ["fedavg", "digits", "p10c2", "1", "–", "–", "–", "–", "–", "–", "–", "0/5", "failed"]
    )


def test_the_columns_of_the_text_table_line_up(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [1.0], method="a_method_with_a_long_name")
    write_run("b", [0.05], method="b")
    title, first, second = to_text(summary(load_runs([tmp_path]))).splitlines()
    right = title.index("best %") + len("best %")
    assert (first[:right].endswith(" 100.00"), second[:right].endswith(" 5.00")) == (True, True)
    assert title.index("Data set") == first.index("digits") == second.index("digits")


def test_markdown_and_latex_and_html_escape_what_is_theirs(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("a", [0.5], method="a|b_c & <b> \\x")
    table = summary(load_runs([tmp_path]))
    assert "| a\\|b\\_c &amp; &lt;b&gt; \\\\x |" in to_markdown(table)
    assert r"a\textbar{}b\_c \& \textless{}b\textgreater{} \textbackslash{}x & digits" in to_latex(table)
    assert "<td>a|b_c &amp; &lt;b&gt; \\x</td>" in to_html(table)


def test_every_line_of_a_markdown_and_a_latex_table_has_as_many_cells(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for seed in (0, 1):
        write_run(f"s{seed}", [0.5], seed=seed)
    table = summary(load_runs([tmp_path]))
    assert {line.count("|") for line in to_markdown(table).splitlines()} == {14}
    assert {line.count("&") for line in to_latex(table).splitlines() if line.endswith(r"\\")} == {12}


def test_the_best_mean_is_marked_where_it_is_said_to_be_established_and_among_methods_of_one_task_only(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run("a", [0.5], method="low")
    write_run("b", [0.75], method="high")
    write_run("c", [0.25], method="alone", split="iid:10")
    table = summary(load_runs([tmp_path]))
    assert "<strong>" not in to_html(table)
    page = to_html(table, best=["Aggregation, last %"])
    assert "<strong>75.00</strong>" in page
    assert "<strong>50.00</strong>" not in page
    assert "<strong>25.00</strong>" not in page


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
def test_what_a_client_sends_is_a_round_s_bytes_by_the_clients_that_upload_in_it(
    tmp_path: Path, write_run: WriteRun, changed: dict[str, object], uploads: int
) -> None:
    """Of ten clients half take part. A round uploads 2 MB, which is half a million numbers of four bytes."""
    folder = write_run("a", [0.5], clients=10)
    for name, value in {"federation.participation": 0.5, **changed}.items():
        change(folder, f"config.{name}", value)
    assert measures(load_runs([tmp_path]))["floats_up"].item() == pytest.approx(0.5 / uploads)
