"""What is computed from a study's rows: claims and tables from hand-made numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from raffed.analysis.studies import COLUMNS, Study, check_table, painted
from raffed.reproductions.studies.figures.map import (
    angular_spread,
    proxy_statistics,
    targeted_classes,
)
from raffed.reproductions.studies.figures.map_two_clients import drops

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


def test_the_angular_spread_is_a_mean_angle_whatever_the_lengths() -> None:
    """Class 0: directions ±30° about x, lengths equal: 30°. Class 1: one direction, lengths 1 and 9: 0°.
    Mean 15°.
    """
    c, s = 3**0.5 / 2, 0.5
    features = [(0, 2 * c, 2 * s), (0, 2 * c, -2 * s), (1, 0.0, 1.0), (1, 0.0, 9.0)]
    rows = [("p", "feature", *one) for one in features] + [("p", "proxy", 0, -1.0, 0.0)]
    made = study("features_2d", [])._replace(points=pd.DataFrame(rows, columns=COLUMNS["points"]))
    assert angular_spread(made, "p") == pytest.approx(15.0)
