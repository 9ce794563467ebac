"""Every study at smoke scale runs, is drawn and repeats its bits; its folder tells the truth, its metrics
and its claims have closed forms. Central training, the open federation and the attacks, seen from inside.
"""

from __future__ import annotations

import importlib
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from raffed.analysis.figures.theme import DARK, LIGHT, in_the_dark, svg
from raffed.analysis.studies import COLUMNS, Study, check_table, load_study, painted, painters
from raffed.reproductions.studies import STUDIES
from raffed.reproductions.studies.averaged_classifiers import LOCAL, angle
from raffed.reproductions.studies.central import load_pool, train
from raffed.reproductions.studies.figures.map import angular_spread, proxy_statistics, targeted_classes
from raffed.reproductions.studies.figures.map_two_clients import drops
from raffed.reproductions.studies.leakage import FIGURE_10, carried_out
from raffed.reproductions.studies.metrics import (
    mean_cosine,
    mean_distance,
    mean_log_angle,
    mean_square,
    proxy_norm,
    spreads,
)
from raffed.reproductions.studies.record import Recorder, rows_sha256
from raffed.reproductions.studies.rounds import OpenFederation, parts
from torch import Tensor

from raffed.attacks.protocol import Effort, leakage
from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.data.preparation import Transform
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.runs.checkpoint import weights_sha256
from raffed.runs.run import run
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import make_network
from raffed.runtime.worker import ClientWorker
from raffed.tables.items import Work, execute_study
from tests.papers import items
from tests.params import one_in
from tests.tiny import client_data, digits, module

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


def test_proxy_norm_and_cosine_are_means_over_classes_and_the_mean_square_is_per_number() -> None:
    """The norm of a mean would be 0."""
    assert proxy_norm(torch.tensor([[3.0, 4.0], [100.0, 0.0], [-3.0, -4.0]]), [0, 2]) == 5.0
    a, b = (Params({"w": torch.full((2, 3), v), "b": torch.full((4,), v)}) for v in (1.0, 3.0))
    assert (mean_square(a, b), mean_square(a, a)) == (4.0, 0.0)
    w = torch.tensor([[1.0, 0.0], [0.0, 3.0], [-2.0, 0.0]])
    assert mean_cosine(w, [0, 1], torch.tensor([7.0, 0.0])) == pytest.approx(0.5)
    assert mean_cosine(w, [2], torch.tensor([7.0, 0.0])) == pytest.approx(-1.0)


def test_spread_within_and_between_classes() -> None:
    """Class 0 at x = 0 and 2, class 3 at x = 10 and 14: distances to the means 1 and 2, means 11 apart."""
    z = torch.tensor([[0.0, 1.0], [10.0, 1.0], [2.0, 1.0], [14.0, 1.0]])
    intra, inter = spreads(z, torch.tensor([0, 3, 0, 3]))
    assert (intra, inter) == (pytest.approx(1.5), pytest.approx(11.0))


PLAIN = Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=4, epochs=3)


def seen(local: Local) -> tuple[list[tuple[int, Tensor, Tensor]], Tensor, Tensor]:
    """What was watched, the head at the start and at the end."""
    net, found = Network(module()), []
    state = train(net, client_data(10, (0, 1), 0), local, 0, Transform(), lambda *row: found.append(row))
    return found, net.initial.w["head.weight"], state.w["head.weight"]


def test_the_sum_of_an_epoch_s_gradients_is_what_plain_sgd_moved_the_head_by() -> None:
    """w_e = w_{e−1} − η Σ g over the epoch's batches, three of them (4 + 4 + 2 samples). With ρ = 0.9 the
    second epoch moves the head by more than its own gradients do. Watching changes no bit.
    """
    found, before, after = seen(PLAIN)
    assert [epoch for epoch, _, _ in found] == [1, 2, 3]
    for _, w, gradient in found:
        assert torch.allclose(gradient, (before - w) / PLAIN.lr, atol=1e-5)
        assert gradient.abs().max() > 0
        before = w
    assert torch.equal(before, after)
    local = Local(lr=0.01, momentum=0.9, weight_decay=0.0, batch_size=10, epochs=2)
    ((_, first, g1), (_, second, g2)), _, watched = seen(local)
    assert torch.allclose(first - second, 0.01 * (g2 + 0.9 * g1), atol=1e-6)
    alone = train(Network(module()), client_data(10, (0, 1), 0), local, 0, Transform())
    assert torch.equal(alone.w["head.weight"], watched)


def test_a_pool_has_so_many_images_of_a_class_and_parts_are_whole_classes(tmp_path: Path) -> None:
    pool = load_pool(Work("any", "smoke", 3, tmp_path), "digits", "map", per_class=7, tests=2)
    assert pool.shape == (1, 32, 32)
    assert torch.bincount(pool.y).tolist() == [7] * 10
    assert torch.bincount(pool.y_test).tolist() == [2] * 10
    assert sorted(set(pool.y[pool.of([4, 9])].tolist())) == [4, 9]
    other = load_pool(Work("any", "smoke", 4, tmp_path), "digits", "map", per_class=7, tests=2)
    assert not torch.equal(pool.x, other.x)
    y = torch.arange(40) % 4
    found = parts(y, [(0, 1), (2, 3)], seed=0, local_test=0.2)
    assert [(len(train), len(test)) for train, test in found] == [(16, 4), (16, 4)]
    together = torch.cat([index for pair in found for index in pair])
    assert sorted(together.tolist()) == list(range(40))
    assert set(y[torch.cat(found[0])].tolist()) == {0, 1}


@pytest.mark.more
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "map", "solo"])
def test_an_open_federation_has_the_bits_of_a_run(method: str, tmp_path: Path) -> None:
    config = digits("p6c4", method=method, federation=Federation(3, 0.5), local_test=0.2)
    setup = prepare_run(config)
    host, net = ClientWorker(setup, None), make_network(setup.network, setup.data)
    own = [host.data.client(client) for client in range(6)]
    asked = (config.local, config.seed, config.federation, setup.data.transform)
    federation = OpenFederation(build_method(method, {}), net, own, *asked)
    for _ in range(3):
        federation.step()
    end = type(net.initial)(federation.server.w, federation.server.b)
    assert weights_sha256(end) == run(config, tmp_path / "run").hashes["weights"]


IMAGE = torch.linspace(0, 1, 64).reshape(1, 8, 8)
TASKS = [
    (setting, IMAGE, 3, 10, i, 0, Effort(iterations=2, restarts=1)) for i, setting in enumerate(FIGURE_10[:2])
]


@pytest.mark.more
def test_in_two_processes_attacks_have_the_outcomes_of_one_in_the_order_asked_for() -> None:
    alone, beside = list(carried_out(TASKS, 1, 1)), list(carried_out(TASKS, 2, 1))
    assert len(alone) == len(TASKS)
    for one, two in zip(alone, beside, strict=True):
        assert one.attempt.trace == two.attempt.trace
        assert torch.equal(one.attempt.image, two.attempt.image)
        assert (one.label, one.said) == (two.label, two.said)


def test_what_cannot_be_attacked_is_refused() -> None:
    with pytest.raises(UsageError, match="exactly one step"):
        leakage(RunConfig(method="pfedme"), images=1, iterations=1)
    with pytest.raises(UsageError, match="images"):
        leakage(RunConfig(), images=0)


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
