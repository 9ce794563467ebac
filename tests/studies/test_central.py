"""Central training and the open federation are the kernel's, seen from inside."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from raffed.reproductions.studies.central import load_pool, network, train
from raffed.reproductions.studies.rounds import OpenFederation, parts
from torch import Tensor

from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Model, Runtime
from raffed.config.training import Local
from raffed.core.training.network import Network
from raffed.data.preparation import Transform
from raffed.methods import build_method
from raffed.runs.checkpoint import weights_sha256
from raffed.runs.run import run
from raffed.runtime.network_setup import make_network
from raffed.runtime.setup import prepare_run
from raffed.runtime.worker import ClientWorker
from raffed.tables.studies import Work
from tests.tiny import client_data, module, same_bits

PLAIN = Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=4, epochs=3)


def seen(local: Local) -> tuple[list[tuple[int, Tensor, Tensor]], Tensor, Tensor]:
    """What was watched, the head at the start and at the end."""
    net, found = Network(module()), []
    state = train(net, client_data(10, (0, 1), 0), local, 0, Transform(), lambda *row: found.append(row))
    return found, net.initial.w["head.weight"], state.w["head.weight"]


def test_the_sum_of_an_epoch_s_gradients_is_what_plain_sgd_moved_the_head_by() -> None:
    """w_e = w_{e−1} − η Σ g over the epoch's batches, three of them (4 + 4 + 2 samples)."""
    found, before, after = seen(PLAIN)
    assert [epoch for epoch, _, _ in found] == [1, 2, 3]
    for _, w, gradient in found:
        assert torch.allclose(gradient, (before - w) / PLAIN.lr, atol=1e-5)
        assert gradient.abs().max() > 0
        before = w
    assert torch.equal(before, after)


def test_momentum_lasts_from_epoch_to_epoch() -> None:
    """With ρ = 0.9 the second epoch moves the head by more than its own gradients do."""
    found, _, _ = seen(Local(lr=0.01, momentum=0.9, weight_decay=0.0, batch_size=10, epochs=2))
    (_, first, g1), (_, second, g2) = found
    assert torch.allclose(first - second, 0.01 * (g2 + 0.9 * g1), atol=1e-6)


def test_watching_changes_no_bit() -> None:
    local = Local(lr=0.1, momentum=0.9, batch_size=4, epochs=2)
    net, data = Network(module()), client_data(10, (0, 1), 0)
    assert same_bits(
        train(net, data, local, 5, Transform()), train(net, data, local, 5, Transform(), lambda *_: None)
    )


def test_proxies_of_missing_classes_differ_at_the_end_as_they_did_at_the_start_but_for_their_probabilities() -> (  # noqa: E501
    None
):
    """Fig. 6's reason: with equal missing rows p_c = p_c', so what keeps them apart is their initial
    difference alone.
    """
    net, data = Network(module(bias=False)), client_data(9, (0,), 0)
    start = net.initial.w.clone()
    start["head.weight"][2] = start["head.weight"][1]
    net.initial = type(net.initial)(start, net.initial.b)
    w = train(net, data, PLAIN, 0, Transform()).w["head.weight"]
    assert torch.equal(w[1], w[2])
    assert not torch.equal(w[0], w[1])


def test_a_pool_has_so_many_images_of_a_class_and_resized(tmp_path: Path) -> None:
    pool = load_pool(Work("any", "smoke", 3, tmp_path), "digits", "map", per_class=7, tests=2)
    assert pool.shape == (1, 32, 32)
    assert torch.bincount(pool.y).tolist() == [7] * 10
    assert torch.bincount(pool.y_test).tolist() == [2] * 10
    assert sorted(set(pool.y[pool.of([4, 9])].tolist())) == [4, 9]
    other = load_pool(Work("any", "smoke", 4, tmp_path), "digits", "map", per_class=7, tests=2)
    assert not torch.equal(pool.x, other.x)


def test_torch_s_initialisation_is_another_one_and_moves_no_global_generator(tmp_path: Path) -> None:
    work = Work("any", "smoke", 0, tmp_path)
    pool = load_pool(work, "digits", "map", per_class=1)
    before = torch.get_rng_state()
    small, usual = (
        network(work, "lenet_2d", pool, torch_init=init).initial.w["head.weight"] for init in (False, True)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert small.abs().max() < 0.06  # N(0, 0.01²)
    assert usual.abs().max() > 0.3  # uniform in ± 1/√2


@pytest.mark.more
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "map", "solo"])
def test_an_open_federation_has_the_bits_of_a_run(method: str, tmp_path: Path) -> None:
    config = RunConfig(
        method,
        {},
        Data("digits", "p6c4", local_test=0.2),
        Model("mlp", {"hidden": [8]}),
        Local(lr=0.05, batch_size=16, epochs=1),
        Federation(3, 0.5),
        runtime=Runtime(execution="serial"),
    )
    setup = prepare_run(config)
    host, net = ClientWorker(setup, None), make_network(setup)
    data = [host.data.client(client) for client in range(6)]
    federation = OpenFederation(
        build_method(method, {}), net, data, config.local, config.seed, config.federation, setup.transform
    )
    for _ in range(3):
        federation.step()
    whole = run(config, tmp_path / "run")
    assert (
        weights_sha256(type(net.initial)(federation.server.w, federation.server.b)) == whole.hashes["weights"]
    )


def test_parts_are_disjoint_whole_classes_and_the_share_is_held_out() -> None:
    y = torch.arange(40) % 4
    found = parts(y, [(0, 1), (2, 3)], seed=0, local_test=0.2)
    assert [(len(train), len(test)) for train, test in found] == [(16, 4), (16, 4)]
    together = torch.cat([index for pair in found for index in pair])
    assert sorted(together.tolist()) == list(range(40))
    assert set(y[torch.cat(found[0])].tolist()) == {0, 1}
