"""Central training, the open federation and the attacks of the leakage study, seen from inside, and what is
computed from the rows of a study.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from raffed.analysis.studies import COLUMNS, Study, check_table, painted
from raffed.reproductions.studies.central import load_pool, train
from raffed.reproductions.studies.figures.map import angular_spread, proxy_statistics, targeted_classes
from raffed.reproductions.studies.figures.map_two_clients import drops
from raffed.reproductions.studies.leakage import FIGURE_10, carried_out
from raffed.reproductions.studies.rounds import OpenFederation, parts
from torch import Tensor

from raffed.attacks.protocol import Effort, leakage
from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Model, Runtime
from raffed.config.training import Local
from raffed.core.training.network import Network
from raffed.data.preparation import Transform
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.runs.checkpoint import weights_sha256
from raffed.runs.run import run
from raffed.runtime.network_setup import make_network
from raffed.runtime.setup import prepare_run
from raffed.runtime.worker import ClientWorker
from raffed.tables.studies import Work
from tests.tiny import client_data, module

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
    data, model = Data("digits", "p6c4", local_test=0.2), Model("mlp", {"hidden": [8]})
    local, serial = Local(lr=0.05, batch_size=16, epochs=1), Runtime(execution="serial")
    config = RunConfig(method, {}, data, model, local, Federation(3, 0.5), runtime=serial)
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
