"""A run over stages: which data a client reads when, what is gone, and the same bits wherever it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raffed
from raffed import Data, Federation, RunConfig
from raffed.core.round import server_init
from raffed.errors import StagePassedError, UsageError
from raffed.runs.participation import draw_participants
from raffed.runtime.api import RoundOrder
from raffed.runtime.federated_data import ClientDataCache
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.setup_model import make_network, make_spec
from raffed.runtime.worker import SerialBackend
from tests.runtime.conftest import small

SPLIT = "stages:4:3:3:if4"


def staged(order: str = "inner", rounds: int = 6, **runtime: Any) -> RunConfig:
    """Four clients of digits with three stages, two clients a round."""
    config = small("fedavg", rounds, **runtime)
    split = SPLIT + (":outer" if order == "outer" else "")
    return replace(config, data=Data(split=split), federation=Federation(rounds=rounds, participation=0.5))


class Watched:
    """The serial runtime, with every index that its host reads written down: (pool, indices)."""

    def __init__(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        self.setup, self.read = setup, []
        usual = ClientDataCache.samples

        def spy(host: ClientDataCache, index: np.ndarray, pool: str, *changed: Any) -> Any:
            self.read.append((pool, index.tolist()))
            return usual(host, index, pool, *changed)

        monkeypatch.setattr(ClientDataCache, "samples", spy)
        self.runtime = SerialBackend(setup)

    def round(self, number: int, clients: tuple[int, ...]) -> list[tuple[str, list[int]]]:
        """What a round of these clients read."""
        net = make_network(self.setup.network, self.setup.data)
        server = server_init(self.setup.method, net.initial, make_spec(self.setup.data, net.feature_dim))
        broadcast = replace(server, round=number).broadcast()
        self.read.clear()
        count = len(clients)
        stacks = tuple((client,) for client in clients)
        self.runtime.train(RoundOrder(broadcast, clients, (1 / count,) * count, (0,) * count, True, stacks))()
        return list(self.read)


@pytest.mark.parametrize(("order", "stages"), [("inner", [0, 1, 2, 0, 1, 2]), ("outer", [0, 0, 1, 1, 2, 2])])
def test_a_round_reads_its_stage_for_training_and_the_tests_of_all_stages_up_to_it(
    order: str, stages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = prepare_run(staged(order))
    watched, p = Watched(setup, monkeypatch), setup.partition
    for number, stage in enumerate(stages):
        assert setup.data.stage(number) == stage
        for client in (1, 3):
            read = watched.round(number, (client,))
            known = number > 0 and stages[number - 1] == stage
            wanted = [
                ("train", p.train_at(client, stage).tolist()),
                ("test", p.test_at(client, stage).tolist()),
            ]
            assert read == ([] if known else wanted), "prepared data are kept for as long as the stage lasts"


def test_a_stage_that_has_passed_is_gone_and_asking_the_client_for_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(prepare_run(staged("outer")), monkeypatch)
    watched.round(0, (0, 1))
    watched.round(2, (1,))
    assert not watched.runtime._worker.data.held - {1}, (
        "client 0 holds nothing of stage 1 although it was not drawn again"
    )
    with pytest.raises(StagePassedError, match="stage 1 has passed: clients are in stage 2"):
        watched.round(1, (0,))


def test_participants_are_drawn_once_for_the_stages_of_an_inner_round_and_every_time_in_outer_order() -> None:
    inner = [draw_participants(prepare_run(staged(rounds=30)).data, t) for t in range(30)]
    assert all(inner[t] == inner[t - t % 3] for t in range(30))
    assert len(set(inner)) > 1
    outer = [draw_participants(prepare_run(staged("outer", rounds=30)).data, t) for t in range(30)]
    assert outer[:10] == inner[::3]
    assert any(outer[t] != outer[t - t % 3] for t in range(30))


def test_rounds_that_do_not_fit_the_stages_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match=r"federation\.rounds = 7 is not a multiple of the 3 stages"):
        prepare_run(staged(rounds=7))


@pytest.mark.parametrize("order", ["inner", "outer"])
def test_a_resumed_run_gives_the_hashes_of_a_whole_one_in_stages(order: str, tmp_path: Path) -> None:
    config, seen = replace(staged(order), method="map"), list[object]()
    raffed.run(config, tmp_path / "stopped", watch=seen.append, stop=lambda: len(seen) == 3)
    assert raffed.resume(tmp_path / "stopped").hashes == raffed.run(config).hashes
