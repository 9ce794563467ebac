"""The drawing of the leakage study: claims and Table 4's marks from hand-made numbers."""

from __future__ import annotations

import functools

import pandas as pd
import pytest
from raffed.analysis.reproduction.printed import printed_values
from raffed.analysis.studies import COLUMNS, Painted, Study, check_table, painted
from raffed.reproductions.studies.figures.leakage import NOISES, PRINTED

NOISE = {"Gaussian 1e-4": 0.001, "Gaussian 1e-2": 20.0, "Laplace 1e-4": 0.02, "Laplace 1e-2": float("inf")}


def study(known: float = 0.002, guessed: float = 5.0, variance: float = 1.0) -> Study:
    """Final errors; those under a noise whose size is read as the variance are `variance` times as large."""
    ends = {"DLG": 0.001, "known_head": known, "MpFedcon 1/1": 8.0, "MpFedcon 3/3": guessed}
    for name, error in NOISE.items():
        ends |= {f"{name} (variance)": variance * error, f"{name} (scale)": error}
    rows: list[tuple[str, str, float, str, float]] = []
    for name, end in ends.items():
        rows += [
            ("cifar10", name, 1, "trace", 1.3),
            ("cifar10", name, 2, "trace", end),
            ("cifar10", name, 0, "mse", end),
        ]
    images = [("cifar10", row, "1", 2, 2, 3, [0.5] * 12) for row in ("original", "DLG")]
    about = {"name": "leakage", "scale": "proxy", "seed": 0, "settings": {"images": 2}}
    none = pd.DataFrame(columns=COLUMNS["points"])
    return Study(
        about,
        pd.DataFrame(rows, columns=COLUMNS["values"]),
        none,
        pd.DataFrame(images, columns=COLUMNS["images"]),
    )


@functools.lru_cache
def drawn(known: float = 0.002, guessed: float = 5.0, variance: float = 1.0) -> Painted:
    """What is shown of `study`. Drawing takes a second, so each study is drawn once."""
    return painted(study(known, guessed, variance))


def holds(**changed: float) -> list[bool]:
    return [check.holds for check in drawn(**changed).checks]


def test_the_claims_hold_for_the_sheets_numbers_and_fail_each_on_its_own() -> None:
    assert holds() == [True, True, True, True]
    assert holds(known=0.2) == [False, True, True, True]
    assert holds(guessed=0.04) == [True, False, True, True]


def test_a_noise_that_defends_where_the_paper_says_no_breaks_the_claim_of_that_reading_alone() -> None:
    """docs/papers/mpfedcon.md §5.4: variance 1e-4 gives 0.12 or more already."""
    assert holds(variance=200.0) == [True, True, False, True]


def test_table_4_has_both_readings_beside_the_papers_mark() -> None:
    table = drawn(variance=200.0).tables["Does the noise defend? cifar10"]
    lines = {line[0]: list(line[1:]) for line in table.rows}
    assert lines["Gaussian 1e-4"] == ["0.2", "yes", "0.001", "no", "no"]
    assert lines["Laplace 1e-2"] == ["> 1000", "yes", "> 1000", "yes", "yes"]
    assert lines["none (DLG)"][-1] == "n/a"
    assert lines["MpFedcon 3/3"] == ["5", "yes", "", "", "yes"]
    assert set(lines) >= set(NOISES)


def test_the_marks_are_those_of_the_papers_table_4() -> None:
    where = {"table": "Table 4", "metric": "defendability"}
    printed = printed_values("mpfedcon")
    for name, value in where.items():
        printed = printed[printed[name] == value]
    marks = dict(zip(printed["method"], printed["value"], strict=True))
    assert marks == {"Original": "n/a", **PRINTED, "MpFedcon": "yes"}
    assert PRINTED == {
        "Gaussian 1e-4": "no",
        "Gaussian 1e-2": "yes",
        "Laplace 1e-4": "no",
        "Laplace 1e-2": "yes",
    }


def test_what_was_not_measured_is_a_dash_and_what_was_is_in_the_table_of_attacks() -> None:
    table = drawn().tables["Attacks on cifar10"]
    first = dict(zip(table.titles, table.rows[0], strict=True))
    assert first["Attack"] == "DLG"
    assert first["at the end"] == "0.001"
    assert first["MSE at 300"] == "–"
    assert len(table.rows) == 4 + 2 * len(NOISES)


def test_the_figures_are_the_curves_and_the_pictures() -> None:
    curves, pictures = (one.figure for one in drawn().figures)
    # A line and a mark each, and 0.03
    assert [len(axes.get_lines()) for axes in curves.axes] == [
        2 * 4 + 1,
        2 * 9 + 1,
    ]
    assert max(max(line.get_ydata()) for axes in curves.axes for line in axes.get_lines()) <= 10.0  # type: ignore[arg-type]
    assert len(pictures.axes) == 2
    assert check_table([study()]) is not None
    assert drawn().checks[0].measured == pytest.approx("DLG 0.001, known_head 0.002")
