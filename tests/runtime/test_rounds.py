"""Rounds of a run: what overlaps with what, which stage's data are read when, what is recorded of validation
parts and of seconds, and `raffed.iterate`. Nothing that is recorded depends on any of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import raffed
from raffed import Data, Federation, Numerics, RunConfig
from raffed.core.messages import Broadcast, ClientState
from raffed.core.params import Params
from raffed.core.round import server_init
from raffed.data.partition_file import Partition
from raffed.errors import ActorsLostError, RunFolderError, StagePassedError, UsageError
from raffed.methods import build_method
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from raffed.runs.checkpoint import checkpoints
from raffed.runs.events import RoundEvent
from raffed.runs.federation import conduct
from raffed.runs.participation import draw_participants
from raffed.runs.run import RunResult
from raffed.runtime import worker
from raffed.runtime.api import RoundOrder, ShareSeconds, Stopwatch
from raffed.runtime.federated_data import ClientDataCache
from raffed.runtime.record_files import ClientStateStore, save_client_states
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.setup_model import make_network, make_spec
from raffed.runtime.worker import SerialBackend
from tests.params import one_in
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
    assert ", ".join(runtime.log) == (
        "ask train 1, have train 1, "
        "ask score 1, ask train 2, have score 1, have train 2, "
        "ask score 2, ask train 3, have score 2, have train 3, ask score 3, have score 3"
    )


def test_nothing_overtakes_a_survey_which_looks_at_what_clients_keep() -> None:
    config = small("fedavg", rounds=3)
    runtime = Listed(replace(config, federation=replace(config.federation, survey=2)))
    list(rounds_of(runtime.setup.config, runtime))
    assert ", ".join(runtime.log[4:]) == (
        "have score 1, have train 2, ask score 2, have score 2, survey 2, "
        "ask train 3, have train 3, ask score 3, have score 3, survey 3"
    )


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


@pytest.mark.parametrize(("round", "runtime"), one_in(3, [(2, Listed), (4, Listed), (2, Eager), (4, Eager)]))
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


THREE_ROUNDS = small("map", rounds=3)


def exhausted(rounds: Generator[RoundEvent, None, RunResult]) -> tuple[list[int], RunResult]:
    """The numbers of all rounds, and what the generator returned."""
    seen = []
    while True:
        try:
            seen.append(next(rounds).round)
        except StopIteration as end:
            return seen, end.value


def test_iterating_yields_every_round_and_ends_in_the_bits_of_run(tmp_path: Path) -> None:
    seen, result = exhausted(raffed.iterate(THREE_ROUNDS, tmp_path / "a"))
    assert seen == [1, 2, 3]
    assert (result.state, result.folder) == ("finished", tmp_path / "a")
    assert result.hashes == raffed.run(THREE_ROUNDS).hashes


def test_leaving_the_loop_stops_the_run_and_resume_ends_in_the_same_bits(tmp_path: Path) -> None:
    rounds = raffed.iterate(THREE_ROUNDS, tmp_path / "a")
    assert next(rounds).round == 1
    rounds.close()
    assert read_run(tmp_path / "a")["state"] == "stopped"
    assert raffed.resume(tmp_path / "a").hashes == raffed.run(THREE_ROUNDS).hashes


VALIDATED = replace(small("map", rounds=3), data=raffed.Data(local_test=0.2, validation=0.2))


def test_each_round_has_its_participants_their_mean_and_the_global_model_on_every_validation_part(
    tmp_path: Path,
) -> None:
    events: list[RoundEvent] = []
    raffed.run(VALIDATED, tmp_path / "run", watch=events.append)
    rows, partition = (
        read_metrics(tmp_path / "run").to_pandas(),
        Partition.load(tmp_path / "run/partition.npz"),
    )
    val = rows[(rows["split"] == "val") & (rows["metric"] == "accuracy")]
    assert set(val["round"]) == {1, 2, 3}
    for number, event in zip((1, 2, 3), events, strict=True):
        mine = val[val["round"] == number]
        clients = mine[mine["client"].notna()]
        assert (set(clients["model"]), len(clients)) == ({"personal"}, 5)
        (mean,) = mine[mine["client"].isna() & (mine["model"] == "personal")]["value"]
        assert event.val_personal == mean == pytest.approx(clients["value"].mean(), abs=1e-12)
        (overall,) = mine[mine["client"].isna() & (mine["model"] == "global")]["value"]
        assert event.val == overall
    assert set(val[val["model"] == "global"]["n"]) == {sum(len(own) for own in partition.val)}
    trained = rows[(rows["model"] == "local") & (rows["split"] == "train")]
    assert trained["n"].tolist() == [len(partition.train[int(client)]) for client in trained["client"]]


ELSEWHERE = os.getpid() + 1
SLOW = ShareSeconds(ELSEWHERE, training=6.0, sums=1.0, scoring=2.0, disk=0.5, total=10.0)
FAST = ShareSeconds(ELSEWHERE + 1, training=3.0, sums=1.0, scoring=2.0, disk=0.5, total=7.0)


def test_messages_are_what_was_waited_beyond_the_slowest_worker() -> None:
    watch = Stopwatch()
    watch.waited(12.0, [FAST, SLOW, FAST])
    assert watch.lap()[:5] == (6.0, 1.0, 2.0, 2.0, 0.5)


def test_the_parts_of_a_round_add_up_to_the_time_since_the_round_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    watch = Stopwatch()
    with watch.part("training"):
        now[0] += 4.0
    now[0] += 1.0
    with watch.part("disk"):
        now[0] += 2.0
    first = watch.lap()
    assert (first.training, first.disk, first.rest, first.total) == (4.0, 2.0, 1.0, 7.0)
    now[0] += 3.0
    assert watch.lap() == (0.0, 0.0, 0.0, 0.0, 0.0, 3.0)


@pytest.mark.parametrize("cohort", [0, 5])
def test_a_client_s_seconds_are_those_of_its_local_round_alone(
    cohort: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fig. 4 of FedMR: training takes 8 s, everything before and after it more; five clients in one stack
    have 8/5 s each.
    """
    now = [0.0]

    def takes(seconds: float, owner: Any, name: str) -> None:
        """Let a function also let time pass."""
        function: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    takes(8.0, worker, "client_rounds")
    takes(100.0, worker, "participant_of")
    takes(100.0, worker.RoundScorer, "of")
    takes(100.0, worker.ClientStateStore, "put")
    takes(100.0, worker.UploadPipeline, "send")
    rows = raffed.run(replace(small("moon", rounds=1), numerics=Numerics(cohort))).to_pandas()
    own = rows[(rows["metric"] == "loss") & rows["client"].notna()]
    assert own["seconds"].tolist() == [pytest.approx(8.0 / max(cohort, 1))] * 5
    assert now[0] > 1000.0  # the others have run
