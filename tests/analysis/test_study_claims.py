"""What is computed from a study's rows: claims and tables from hand-made numbers."""

from __future__ import annotations

import functools
import math
from typing import Any

import pandas as pd
import pytest
from raffed.analysis.reproduction.printed import printed_values
from raffed.analysis.studies import COLUMNS, Painted, Study, check_table, painted
from raffed.reproductions.studies.figures.leakage import NOISES, PRINTED
from raffed.reproductions.studies.figures.map import (
    angular_spread,
    features_2d,
    proxy_statistics,
    targeted_classes,
)
from raffed.reproductions.studies.figures.map_two_clients import _demo_checks, drops

Rows = list[tuple[str, str, float, str, float]]


def study(name: str, values: Rows, scale: str = "proxy", seed: int = 0, **settings: Any) -> Study:
    frames = {part: pd.DataFrame(columns=columns) for part, columns in COLUMNS.items()}
    frames["values"] = pd.DataFrame(values, columns=COLUMNS["values"])
    about = {"name": name, "scale": scale, "seed": seed, "settings": settings}
    return Study(about, frames["values"], frames["points"], frames["images"])


def targeted(m1: tuple[float, float], m2: tuple[float, float], seed: int = 0) -> Study:
    rows: Rows = []
    for x, first, second in zip((2, 4), m1, m2, strict=True):
        rows += [
            ("targeted classes", "M1", x, "accuracy", first),
            ("targeted classes", "M2", x, "accuracy", second),
            ("targeted classes", "M2 among n", x, "accuracy", first + 0.01),
        ]
    return study("targeted_classes", rows, seed=seed)


def test_a_gap_that_grows_as_n_falls_holds_and_seeds_are_counted_claim_by_claim() -> None:
    grows, shrinks = targeted((0.9, 0.8), (0.7, 0.7)), targeted((0.9, 0.8), (0.85, 0.7), seed=1)
    assert [check.holds for check in targeted_classes(grows).checks] == [True, True, False, False]
    assert [check.holds for check in targeted_classes(shrinks).checks] == [True, False, False, False]
    table = check_table([grows, shrinks])
    assert [line[-1] for line in table.rows[:2]] == ["2 of 2 seeds", "1 of 2 seeds"]
    assert table.rows[1][1] == "+20.0, +10.0 points, n rising; +5.0, +10.0 points, n rising"
    shown = painted(study("phrenology", [("a", "b", 0, "bump", 1.5), ("a", "b", 1, "bump", 2.5)]))
    assert shown.tables["Values"].rows == [["a", "b", "2.5"]]


def test_a_drop_is_what_is_lost_between_two_rounds_and_a_gain_what_is_won_within_one() -> None:
    """a^down = 0.1, 0.4, 0.5 and a^pers = 0.8, 0.9, 0.7: drops 0.8 − 0.4 and 0.9 − 0.5, gains 0.7, 0.5,
    0.2.
    """
    rows: Rows = []
    for round, (down, personal) in enumerate(((0.1, 0.8), (0.4, 0.9), (0.5, 0.7)), start=1):
        rows += [
            ("MAP", "client 1", round, "accuracy, downloaded", down),
            ("MAP", "client 1", round, "accuracy, personalized", personal),
        ]
    ((drop, gain),) = drops(study("two_client_demo", rows), "MAP").values()
    assert drop.to_dict() == pytest.approx({2: 0.4, 3: 0.4})
    assert gain.to_dict() == pytest.approx({1: 0.7, 2: 0.5, 3: 0.2})


def proxies(missing_norm: float, gradients: tuple[float, float], within: tuple[float, float]) -> Study:
    rows: Rows = []
    for epoch in (0, 1, 2):
        for series, norm in (("observed", 1.0), ("missing", missing_norm)):
            rows.append(("proxies", series, epoch, "proxy norm", norm))
            if epoch:
                value = gradients[epoch - 1] if series == "missing" else 1.0
                rows.append(("proxies", series, epoch, "accumulated gradient norm", value))
        for series in ("O-O", "O-M", "M-M"):
            value = within[epoch - 1] if series == "M-M" and epoch else 1.0
            rows += [
                ("proxies", series, epoch, "distance", value),
                ("proxies", series, epoch, "log(1 − cos)", 0.0),
            ]
    return study("proxy_statistics", rows)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (proxies(0.9, (5.0, 0.1), (0.1, 0.1)), [True, True, True, True, True]),
        (proxies(1.1, (5.0, 0.1), (0.1, 0.1)), [False, True, True, True, True]),
        (proxies(0.9, (5.0, 5.1), (0.1, 0.1)), [True, False, False, True, True]),
        (proxies(0.9, (5.0, 1.0), (0.1, 0.5)), [True, True, False, True, False]),
        (proxies(0.9, (5.0, 0.1), (1.0, 0.1)), [True, True, True, False, False]),
    ],
)
def test_the_claims_on_proxies_are_read_off_the_curves(made: Study, wanted: list[bool]) -> None:
    assert [check.holds for check in proxy_statistics(made).checks] == wanted


def panels(
    missing: float = 0.5, cosine: float = -0.2, spreads: tuple[float, float, float] = (1.0, 2.0, 3.0)
) -> Study:
    """Fig. 5: six panels, 8, 5 and 2 classes with and without ReLU; features of class 0 at ±10, ±20 and
    ±30 degrees.
    """
    values: Rows = []
    points = []
    for word in ("ReLU", "no ReLU"):
        for count, spread, degrees in zip((8, 5, 2), spreads, (10, 20, 30), strict=True):
            name = f"{count} classes, {word}"
            values += [
                (name, "missing", 0, "proxy norm", missing),
                (name, "observed", 0, "proxy norm", 1.0),
                (name, "missing", 0, "cosine to the mean feature", cosine),
                (name, "observed", 0, "within-class spread", spread),
                (name, "observed", 0, "accuracy", 0.9),
                (name, "observed", 0, "between classes", 1.0),
            ]
            x, y = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            points += [(name, "feature", 0, x, y), (name, "feature", 0, x, -y), (name, "proxy", 0, 1.0, 0.0)]
    return study("features_2d", values)._replace(points=pd.DataFrame(points, columns=COLUMNS["points"]))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (panels(), [True, True, True, True, True, True]),
        (panels(missing=1.1), [False, True, True, True, True, True]),
        (panels(cosine=0.1), [True, False, True, True, True, True]),
        (panels(spreads=(1.0, 3.0, 2.0)), [True, True, False, True, False, True]),
    ],
)
def test_the_claims_on_features_are_read_off_the_panels(made: Study, wanted: list[bool]) -> None:
    """Norms, cosines; then with and without ReLU the spread, and the same by angles."""
    assert [check.holds for check in features_2d(made).checks] == wanted


def demo(fedavg: tuple[float, float, float], map_: float, norms: tuple[float, float]) -> Study:
    """Fig. 8, one client, four rounds that end at 0.9: what FedAvg loses before rounds 2 to 4, MAP before
    each of them; norms of missing proxies under FedAvg and under MAP.
    """
    rows: Rows = []
    for method, lost, norm in (("FedAvg", fedavg, norms[0]), ("MAP", (map_,) * 3, norms[1])):
        for round, drop in enumerate((0.0, *lost), start=1):
            rows += [
                (method, "client 1", round, "accuracy, downloaded", 0.9 - drop),
                (method, "client 1", round, "accuracy, personalized", 0.9),
                (method, "client 1", round, "norm of missing proxies after training", norm),
            ]
    return study("two_client_demo", rows)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (demo((0.3, 0.2, -0.1), 0.1, (0.5, 0.7)), [True, True, True]),
        (demo((0.6, -0.1, -0.1), 0.1, (0.5, 0.7)), [False, True, True]),
        (demo((0.3, 0.2, -0.1), 0.2, (0.5, 0.7)), [True, False, True]),
        (demo((0.3, 0.2, -0.1), 0.1, (0.7, 0.5)), [True, True, False]),
    ],
)
def test_the_claims_on_two_clients_are_read_off_their_rounds(made: Study, wanted: list[bool]) -> None:
    """FedAvg drops in most rounds; MAP's mean drop is smaller (FedAvg's is 0.13); missing proxies are
    longer under MAP.
    """
    assert [check.holds for check in _demo_checks(made, ("FedAvg", "MAP"))] == wanted


def test_the_angular_spread_is_a_mean_angle_whatever_the_lengths() -> None:
    """Class 0: directions ±30° about x, lengths equal: 30°. Class 1: one direction, lengths 1 and 9: 0°.
    Mean 15°.
    """
    c, s = 3**0.5 / 2, 0.5
    features = [(0, 2 * c, 2 * s), (0, 2 * c, -2 * s), (1, 0.0, 1.0), (1, 0.0, 9.0)]
    rows = [("p", "feature", *one) for one in features] + [("p", "proxy", 0, -1.0, 0.0)]
    made = study("features_2d", [])._replace(points=pd.DataFrame(rows, columns=COLUMNS["points"]))
    assert angular_spread(made, "p") == pytest.approx(15.0)


NOISE = {"Gaussian 1e-4": 0.001, "Gaussian 1e-2": 20.0, "Laplace 1e-4": 0.02, "Laplace 1e-2": float("inf")}


def leakage(known: float = 0.002, guessed: float = 5.0, variance: float = 1.0) -> Study:
    """Final errors; those under a noise whose size is read as the variance are `variance` times as large."""
    ends = {"DLG": 0.001, "known_head": known, "MpFedcon 1/1": 8.0, "MpFedcon 3/3": guessed}
    for name, error in NOISE.items():
        ends |= {f"{name} (variance)": variance * error, f"{name} (scale)": error}
    values = [
        ("cifar10", name, step, kind, value)
        for name, end in ends.items()
        for step, kind, value in ((1, "trace", 1.3), (2, "trace", end), (0, "mse", end))
    ]
    images = [("cifar10", row, "1", 2, 2, 3, [0.5] * 12) for row in ("original", "DLG")]
    about = {"name": "leakage", "scale": "proxy", "seed": 0, "settings": {"images": 2}}
    rows = {"values": values, "points": [], "images": images}
    frames = [pd.DataFrame(rows[part], columns=COLUMNS[part]) for part in ("values", "points", "images")]
    return Study(about, *frames)


@functools.lru_cache
def drawn(known: float = 0.002, guessed: float = 5.0, variance: float = 1.0) -> Painted:
    """What is shown of `leakage`. Drawing takes a second, so each study is drawn once."""
    return painted(leakage(known, guessed, variance))


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({}, [True, True, True, True]),
        ({"known": 0.2}, [False, True, True, True]),
        ({"guessed": 0.04}, [True, False, True, True]),
        ({"variance": 200.0}, [True, True, False, True]),
    ],
)
def test_the_claims_on_leakage_fail_each_on_its_own(changed: dict[str, float], holds: list[bool]) -> None:
    """docs/papers/mpfedcon.md §5.4: variance 1e-4 gives 0.12 or more already."""
    assert [check.holds for check in drawn(**changed).checks] == holds


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


def test_the_figures_are_the_curves_and_the_pictures() -> None:
    curves, pictures = (one.figure for one in drawn().figures)
    # A line and a mark each, and 0.03
    assert [len(axes.get_lines()) for axes in curves.axes] == [2 * 4 + 1, 2 * 9 + 1]
    assert max(max(line.get_ydata()) for axes in curves.axes for line in axes.get_lines()) <= 10.0  # type: ignore[arg-type]
    assert len(pictures.axes) == 2
    assert check_table([leakage()]) is not None
    assert drawn().checks[0].measured == pytest.approx("DLG 0.001, known_head 0.002")
