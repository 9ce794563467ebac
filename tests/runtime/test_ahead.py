"""The next round trains while this one is scored and recorded, and nothing that is recorded depends on it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed.core.messages import Broadcast, ClientState
from raffed.core.params import Params
from raffed.errors import ActorsLostError, RunFolderError
from raffed.methods import build_method
from raffed.results.writer import read_metrics
from raffed.runs.checkpoint import checkpoints
from raffed.runs.federation import conduct
from raffed.runtime.api import RoundOrder
from raffed.runtime.record_files import ClientStateStore, save_client_states
from raffed.runtime.setup import prepare_run
from raffed.runtime.worker import SerialBackend
from tests.runtime.conftest import small


class Listed(SerialBackend):
    """The serial runtime, with what was asked of it and what was waited for written down; scores of
    `fails` are lost, once.
    """

    def __init__(self, config: Any, vaults: Path | None = None, fails: int = 0) -> None:
        self.log: list[str] = []
        self.fails = fails
        self.setup = prepare_run(config)
        super().__init__(self.setup, vaults)

    def _listed(self, name: str, asked: Callable[[], Any]) -> Callable[[], Any]:
        self.log.append(f"ask {name}")

        def answer() -> Any:
            if name == f"score {self.fails}":
                self.fails = 0
                raise ActorsLostError("client actors died: the test's doing")
            made = asked()
            self.log.append(f"have {name}")
            return made

        return answer

    def train(self, job: RoundOrder) -> Callable[[], Any]:
        return self._listed(f"train {job.round + 1}", super().train(job))

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Callable[[], Any]:
        return self._listed(f"score {broadcast.round}", super().evaluate(broadcast, part))

    def survey(self, job: RoundOrder, whole: Broadcast | None) -> Any:
        self.log.append(f"survey {job.round}")
        return super().survey(job, whole)


def test_a_round_is_scored_after_the_next_ones_training_was_asked_for_and_before_it_is_waited_for() -> None:
    config = small("fedavg", rounds=3)
    runtime = Listed(config)
    rounds = [event.round for event in rounds_of(config, runtime)]
    assert rounds == [1, 2, 3]
    assert runtime.log == [
        "ask train 1",
        "have train 1",
        "ask score 1",
        "ask train 2",
        "have score 1",
        "have train 2",
        "ask score 2",
        "ask train 3",
        "have score 2",
        "have train 3",
        "ask score 3",
        "have score 3",
    ]


def test_nothing_overtakes_a_survey_which_looks_at_what_clients_keep() -> None:
    config = small("fedavg", rounds=3)
    runtime = Listed(replace(config, federation=replace(config.federation, survey=2)))
    list(rounds_of(runtime.setup.config, runtime))
    assert runtime.log[4:] == [
        "have score 1",
        "have train 2",
        "ask score 2",
        "have score 2",
        "survey 2",
        "ask train 3",
        "have train 3",
        "ask score 3",
        "have score 3",
        "survey 3",
    ]


def test_a_stop_drops_the_training_ahead() -> None:
    config, seen = small("fedavg", rounds=5), list[int]()
    runtime = Listed(config)
    for event in rounds_of(config, runtime, lambda: len(seen) == 2):
        seen.append(event.round)
    assert seen == [1, 2]
    assert "ask train 3" in runtime.log
    assert "have train 3" not in runtime.log


class Eager(Listed):
    """Trains when it is asked, as actors do: while a round is scored, clients hold what they keep after
    the next one already.
    """

    def train(self, job: RoundOrder) -> Callable[[], Any]:
        made = super().train(job)()
        return lambda: made


@pytest.mark.parametrize("runtime", [Listed, Eager])
@pytest.mark.parametrize("round", [2, 4])
def test_scores_that_are_lost_leave_no_gap_in_the_rows_of_the_resumed_run(
    round: int, runtime: type[Listed], tmp_path: Path
) -> None:
    """The uploads of the round are in the server by then: what is rescued is the round before, rows,
    vaults and all.
    """
    config, path = small(rounds=5, checkpoint_every=100), tmp_path / "run"
    lossy = runtime(config, path / "vaults", fails=round)
    with pytest.raises(ActorsLostError, match="the test's doing"):
        list(conduct(lossy.setup, path, False, lossy, lambda: False))
    assert set(read_metrics(path)["round"].to_pylist()) == set(range(1, round))
    assert [one.name for one in checkpoints(path)] == [f"round-{round - 1:06d}"]
    assert raffed.resume(path).hashes == raffed.run(config).hashes


def test_a_checkpoint_without_a_clients_vault_is_not_made(tmp_path: Path) -> None:
    """It would hide the sound one before it."""
    store = ClientStateStore(tmp_path / "store", build_method("fedbn").keeps_state)
    store.put(0, 2, ClientState(Params({"x": torch.ones(1)}), Params({}), {}))
    with pytest.raises(RunFolderError, match="client 0 after round 1 is missing"):
        save_client_states(tmp_path / "store", {0: 1}, tmp_path / "vaults", {})


def rounds_of(config: Any, runtime: Listed, stop: Callable[[], bool] = lambda: False) -> Any:
    """The events of a run on a runtime; nothing is kept."""
    with tempfile.TemporaryDirectory() as folder:
        yield from conduct(prepare_run(config), Path(folder) / "run", False, runtime, stop)
