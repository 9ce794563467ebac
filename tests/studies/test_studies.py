"""Every study at smoke scale runs, is drawn and repeats its bits; its folder tells the truth, its metrics
have closed forms.
"""

from __future__ import annotations

import importlib
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from raffed.analysis.figures.theme import DARK, LIGHT, in_the_dark, svg
from raffed.analysis.studies import check_table, load_study, painted, painters
from raffed.reproductions.studies import STUDIES
from raffed.reproductions.studies.averaged_classifiers import LOCAL, angle
from raffed.reproductions.studies.metrics import (
    mean_cosine,
    mean_distance,
    mean_log_angle,
    mean_square,
    proxy_norm,
    spreads,
)
from raffed.reproductions.studies.record import Recorder, rows_sha256

from raffed.core.params import Params
from raffed.tables.items import Work, execute_study
from tests.papers import items
from tests.params import one_in

SLOW = ("features_tsne", "leakage")  # scikit-learn takes seconds to import, 18 attacks take ten
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in STUDIES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


@cache
def made(folder: Path, name: str, seed: int = 0, again: int = 0) -> Path:
    """A study's folder. Its progress is told from nothing to all and never backwards."""
    path, told = folder / f"{name}-{seed}-{again}", list[float]()
    execute_study(Work(name, "smoke", seed, path, tell=lambda _, share: told.append(share)))
    assert told == sorted(told)
    return path


def about(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "study.json").read_text())


def digests(folder: Path) -> object:
    return about(folder)["rows_sha256"]


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_a_study_runs_and_is_drawn_and_judged(name: str, folder: Path) -> None:
    study = load_study(made(folder, name))
    assert study.about["settings"]
    shown = painted(study)
    assert shown.figures
    for one in shown.figures:
        light = svg(one.figure)
        dark = in_the_dark(light)
        assert (dark != light, LIGHT.ink in dark, DARK.ink in dark) == (True, False, True)
    assert shown.checks or shown.tables


@pytest.mark.more
@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_bits(name: str, folder: Path) -> None:
    assert digests(made(folder, name)) == digests(made(folder, name, again=1))
    if name == "proxy_statistics":
        assert digests(made(folder, name)) != digests(made(folder, name, seed=1))


def test_smoke_decides_nothing_that_was_trained_and_mathematics_holds_at_any_scale(folder: Path) -> None:
    trained = check_table([load_study(made(folder, "proxy_statistics", seed=seed)) for seed in (0, 1)])
    exact = check_table([load_study(made(folder, "averaged_classifiers"))])
    assert trained is None
    assert [line[-1] for line in exact.rows] == ["yes"]


def test_every_study_has_a_painter_and_an_item_and_every_item_s_study_is_there() -> None:
    assert set(painters()) == set(STUDIES)
    wanted = {item.study for item in items().values() if item.study}
    assert wanted == set(STUDIES)


def test_the_data_that_a_study_states_are_those_that_it_reads() -> None:
    checked = 0
    for name, info in STUDIES.items():
        settings = getattr(importlib.import_module(f"raffed.reproductions.studies.{name}"), "SETTINGS", {})
        for scale, chosen in settings.items():
            stated = info.data.get(scale, ())
            assert stated == (() if chosen.dataset == "digits" else (chosen.dataset,)), (name, scale)
            checked += 1
    assert checked >= 18


def work(folder: Path) -> Work:
    return Work("averaged_classifiers", "smoke", 0, folder)


def test_a_study_reads_back_as_it_was_written(tmp_path: Path) -> None:
    picture = np.arange(12, dtype=np.float32).reshape(3, 2, 2) / 12
    with Recorder(work(tmp_path), {"epochs": 2}) as record:
        record.points("a", "feature", [3, 4], np.array([[0.5, 1.5], [2.5, -1.0]]))
        record.image("a", "original", "0", picture)
    found = about(tmp_path)
    assert (found["state"], found["settings"]) == ("finished", {"epochs": 2})
    assert (
        {path.stem for path in tmp_path.glob("*.parquet")}
        == set(found["rows_sha256"])
        == {"points", "images"}
    )
    points = pq.read_table(tmp_path / "points.parquet").to_pylist()
    assert points[1] == {"panel": "a", "kind": "feature", "label": 4, "x": 2.5, "y": -1.0}
    (image,) = pq.read_table(tmp_path / "images.parquet").to_pylist()
    shape = image["channels"], image["height"], image["width"]
    assert np.array_equal(np.array(image["pixels"], np.float32).reshape(shape), picture)


def test_a_study_that_fails_is_not_finished_and_leaves_no_rows_of_an_earlier_one(tmp_path: Path) -> None:
    with Recorder(work(tmp_path), {}) as record:
        record.value("a", "b", 0, "norm", 1.0)

    def fail() -> None:
        assert about(tmp_path)["state"] == "running"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Recorder(work(tmp_path), {}):
        fail()
    assert about(tmp_path)["state"] == "failed"
    assert not list(tmp_path.glob("*.parquet"))


def test_the_hash_is_of_the_rows_and_not_of_the_file(tmp_path: Path) -> None:
    table = pa.table(
        {"panel": ["a", "b"], "value": [1.0, math.nan], "pixels": pa.array([[0.5], [0.25, 1.0]])}
    )
    pq.write_table(table, tmp_path / "a.parquet", compression="none", row_group_size=1)
    assert rows_sha256(pq.read_table(tmp_path / "a.parquet")) == rows_sha256(table)


def test_the_mean_of_the_three_classifiers_is_the_sheet_s() -> None:
    """docs/papers/fedmr.md §E4: rows (⅓, 0), (−⅙, (√3+2)/6), (−⅙, −(√3+2)/6); 45° to (−√3/2, ½)."""
    y = (math.sqrt(3) + 2) / 6
    mean = LOCAL.mean(axis=0)
    assert np.allclose(mean, [(1 / 3, 0), (-1 / 6, y), (-1 / 6, -y)], atol=1e-15)
    assert angle(np.array([-math.sqrt(3) / 2, 0.5]), mean[1]) == pytest.approx(45.0, abs=1e-12)


def test_the_proxy_norm_is_the_mean_of_the_norms_and_not_the_norm_of_the_mean() -> None:
    w = torch.tensor([[3.0, 4.0], [100.0, 0.0], [-3.0, -4.0]])
    assert proxy_norm(w, [0, 2]) == 5.0


def test_distances_count_every_unordered_pair_once_and_no_row_with_itself() -> None:
    """Corners (0,0), (3,4), (0,0): 5, 0 and 5 inside; to (6,8): 10, 5, 10."""
    w = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    assert mean_distance(w, [0, 1, 2]) == pytest.approx(10 / 3)
    assert mean_distance(w, [0, 1, 2], [3]) == pytest.approx(25 / 3)
    assert mean_distance(w, [0, 3]) == pytest.approx(10.0)
    assert math.isnan(mean_distance(w, [0]))


def test_the_log_angle_is_0_at_right_angles_and_log_2_between_opposites_whatever_the_lengths() -> None:
    w = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-0.1, 0.0]])
    assert mean_log_angle(w, [0, 1]) == pytest.approx(0.0, abs=1e-9)
    assert mean_log_angle(w, [0], [2]) == pytest.approx(math.log(2))
    assert mean_log_angle(w, [0, 1, 2]) == pytest.approx(math.log(2) / 3, abs=1e-9)
    assert mean_log_angle(w[[0, 0]], [0, 1]) == pytest.approx(math.log(1e-12))


def test_the_cosine_to_a_direction_is_a_mean_over_classes() -> None:
    w = torch.tensor([[1.0, 0.0], [0.0, 3.0], [-2.0, 0.0]])
    assert mean_cosine(w, [0, 1], torch.tensor([7.0, 0.0])) == pytest.approx(0.5)
    assert mean_cosine(w, [2], torch.tensor([7.0, 0.0])) == pytest.approx(-1.0)


def test_spread_within_and_between_classes() -> None:
    """Class 0 at x = 0 and 2, class 3 at x = 10 and 14: distances to the means 1 and 2, means 11 apart."""
    z = torch.tensor([[0.0, 1.0], [10.0, 1.0], [2.0, 1.0], [14.0, 1.0]])
    intra, inter = spreads(z, torch.tensor([0, 3, 0, 3]))
    assert (intra, inter) == (pytest.approx(1.5), pytest.approx(11.0))


def test_the_mean_square_is_per_number() -> None:
    a, b = (Params({"w": torch.full((2, 3), v), "b": torch.full((4,), v)}) for v in (1.0, 3.0))
    assert mean_square(a, b) == 4.0
    assert mean_square(a, a) == 0.0
