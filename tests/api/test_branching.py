"""`extend` and `fork`: a run goes on to more rounds, or on a branch of its own."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import raffed
from raffed import Clock, Federation, RunConfig
from raffed.api.branching import horizon_of
from raffed.config.validation import Value
from raffed.data.array_cache import ArrayCache
from raffed.errors import DataFileError, RunFolderError, UsageError
from raffed.own.user_code import UserCodeError
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from raffed.runs.metric_rows import epsilon, epsilon_of
from raffed.runtime.federated_data import unseen_clients
from raffed.runtime.setup import prepare_run
from tests.forging import edited
from tests.testing.broken import raises
from tests.tiny import digits

BASE = digits("dirichlet:4:0.5", method="scaffold", federation=Federation(4, 0.5), samples=200)
BASE = BASE.changed({"runtime.checkpoint_every": 2})


def of(rounds: int, **changes: Value) -> RunConfig:
    """The run of this file with another number of rounds and other settings."""
    names = {name.replace("__", "."): value for name, value in changes.items()}
    return BASE.changed({"federation.rounds": rounds, **names})


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("branching") / "four"
    raffed.run(of(4), out)
    return out


@pytest.fixture(scope="module")
def buffered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("branching") / "buffered"
    clock = Clock(speeds="lognormal", server="fedbuff", buffer=2)
    raffed.run(replace(of(3), method="fedavg", clock=clock), out)
    return out


@pytest.fixture(scope="module")
def seven() -> raffed.RunResult:
    return raffed.run(of(7))


def copied(run: Path, to: Path) -> Path:
    shutil.copytree(run, to)
    return to


def verified(run: Path) -> list[str]:
    """What `verify` finds wrong, all rounds executed again."""
    return [f"{one.what} {one.round}" for one in raffed.verify(run, 99, progress=False).checks if not one.ok]


def test_an_extended_run_has_the_bits_of_a_run_with_all_rounds_from_the_start(
    four: Path, seven: raffed.RunResult, tmp_path: Path
) -> None:
    run, before = copied(four, tmp_path / "run"), read_run(four)
    raffed.extend(run, 5)
    assert raffed.extend(run, 7, stop=lambda: True).state == "stopped"
    assert read_run(run)["rounds_done"] == 6
    found = raffed.resume(run)
    assert (found.state, found.hashes) == ("finished", seven.hashes)
    assert verified(run) == []
    about = read_run(run)
    assert [one["config"]["federation"]["rounds"] for one in about["earlier"]] == [4, 5]
    assert about["earlier"][0]["identity"] == before["identity"]
    assert (about["identity"], about["run_id"]) == (of(7).identity(), before["run_id"])
    edited(run / "run.json", lambda about: about["earlier"][0]["config"].update(seed=7))
    with pytest.raises(RunFolderError, match="an earlier configuration was edited"):
        raffed.resume(run)


@pytest.mark.more
@pytest.mark.parametrize(
    "changes",
    [
        {"federation.measures": "calibration,fairness", "federation.survey": 2},
        {"federation.unseen_clients": 0.5, "data.local_test": 0.2, "runtime.checkpoint_every": 99},
        {"federation.eval_every": 3, "local.schedule": "exponential"},
        {"method": "finetune"},
    ],
    ids=str,
)
def test_what_ends_a_run_is_made_where_the_longer_ends(changes: Mapping[str, Value], tmp_path: Path) -> None:
    whole = raffed.run(of(6).changed(changes))
    raffed.run(of(4).changed(changes), tmp_path / "run")
    assert raffed.extend(tmp_path / "run", 6).hashes == whole.hashes


STAGES = {"data__split": "stages:4:2:2:if1:outer", "data__samples": 0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "fedproc"}, "depend on the total number of rounds"),
        (STAGES, "stages divide the total number of rounds"),
        ({"local__schedule": "cosine"}, r"local\.schedule = 'cosine' depends on the total"),
    ],
    ids=str,
)
def test_runs_bound_to_a_total_do_not_extend(changes: dict[str, Value], reason: str, tmp_path: Path) -> None:
    """Cosine over 4 rounds has another second round than cosine over 8."""
    run = tmp_path / "run"
    raffed.run(of(4, **changes), run)
    before = (run / "run.json").read_bytes()
    with pytest.raises(UsageError, match=reason):
        raffed.extend(run, 8)
    with pytest.raises(UsageError, match="has 4; give a larger number"):
        raffed.extend(run, 4)
    assert (run / "run.json").read_bytes() == before


def test_an_error_of_a_method_that_is_tried_for_more_rounds_names_its_line() -> None:
    with pytest.raises(UserCodeError, match=r"broken\.py:\d+: ValueError: a mistake of mine"):
        horizon_of(SimpleNamespace(method=raises()))  # type: ignore[arg-type]


def test_a_fork_with_equal_settings_is_the_run(four: Path, seven: raffed.RunResult, tmp_path: Path) -> None:
    run = copied(four, tmp_path / "run")
    raffed.extend(run, 7)
    fork = raffed.fork(run, {}, tmp_path / "fork", at=4)
    assert {**fork.hashes, "metrics": ""} == {**seven.hashes, "metrics": ""}
    columns = ["round", "metric", "value", "client", "model", "split", "class"]
    ours, theirs = (
        [row for row in one.select(columns).to_pylist() if row["metric"] != "seconds"]
        for one in (fork.metrics, seven.metrics)
    )
    assert ours == theirs


def test_a_fork_shares_the_rounds_before_it(four: Path, seven: raffed.RunResult, tmp_path: Path) -> None:
    out = tmp_path / "fork"
    fork = raffed.fork(four, {"local.lr": 0.01, "federation.rounds": 7}, out, at=2)
    about = read_run(out)
    assert about["round_hashes"][:2] == read_run(four)["round_hashes"][:2]
    assert about["round_hashes"][2] != read_run(four)["round_hashes"][2]
    assert fork.hashes != seven.hashes
    assert about["config"]["federation"]["forked_at"] == 2
    assert about["earlier"][0]["run_id"] == read_run(four)["run_id"]
    assert set(fork.metrics["run_id"].to_pylist()) == {about["run_id"]}
    assert verified(out) == []


def test_a_fork_does_not_touch_its_run(four: Path, tmp_path: Path) -> None:
    """Also not where it computes the round again, with the run's threads and not with the fork's."""
    before = {one: one.read_bytes() for one in four.rglob("*") if one.is_file() and one.name != ".lock"}
    changes: dict[str, Value] = {"local.lr": 0.01, "federation.rounds": 5, "runtime.threads": 2}
    raffed.fork(four, changes, tmp_path / "fork", at=3)
    about = read_run(tmp_path / "fork")
    assert about["round_hashes"][:3] == read_run(four)["round_hashes"][:3]
    assert about["rounds_done"] == 5
    assert {one: one.read_bytes() for one in before} == before
    assert raffed.resume(four).state == "finished"


@pytest.mark.parametrize("selection", ["uniform", "power_of_choice"])
def test_clients_of_whom_the_run_keeps_nothing_begin_a_fork_anew(selection: str, tmp_path: Path) -> None:
    """Error feedback starts from nothing left out, so a first upload is that of a fork without feedback.

    The second one is not, and a fork that has left feedback out and takes it up again starts once more.
    """
    chosen: dict[str, Value] = {"method": "fedavg", "federation__selection": selection}
    raffed.run(of(2, **chosen, federation__participation=1.0), tmp_path / "run")
    topk: dict[str, Value] = {"federation.compression": "topk"}
    once = {**topk, "federation.compression_args": {"feedback": False}, "federation.rounds": 4}
    raffed.fork(tmp_path / "run", {**topk, "federation.rounds": 4}, tmp_path / "feedback", at=2)
    raffed.fork(tmp_path / "run", once, tmp_path / "once", at=2)
    ours, theirs = (read_run(tmp_path / name)["round_hashes"] for name in ("feedback", "once"))
    assert ours[:3] == theirs[:3]
    assert ours[3] != theirs[3]
    assert verified(tmp_path / "feedback") == []
    raffed.fork(tmp_path / "feedback", {**once, "federation.rounds": 5}, tmp_path / "left", at=4)
    more: dict[str, Value] = {"federation.compression_args": {"feedback": True}, "federation.rounds": 6}
    raffed.fork(tmp_path / "left", more, tmp_path / "again", at=5)
    raffed.fork(tmp_path / "left", {"federation.rounds": 6}, tmp_path / "still", at=5)
    assert read_run(tmp_path / "again")["round_hashes"] == read_run(tmp_path / "still")["round_hashes"]


def test_a_fork_of_a_fork_keeps_the_whole_history(four: Path, tmp_path: Path) -> None:
    raffed.fork(four, {"federation.participation": 1.0, "federation.rounds": 5}, tmp_path / "a", at=2)
    raffed.fork(tmp_path / "a", {"local.lr": 0.01, "federation.rounds": 6}, tmp_path / "b", at=4)
    assert [one["until"] for one in read_run(tmp_path / "b")["earlier"]] == [2, 4]
    assert verified(tmp_path / "b") == []


@pytest.mark.parametrize(
    ("changes", "at", "reason"),
    [
        ({"method": "fedavg"}, 2, "a fork keeps method"),
        ({"privacy.clip": 1.0}, 2, "a fork keeps privacy"),
        ({"data.split": "dirichlet:5:0.5", "federation.rounds": 6}, 2, "keeps their number"),
        ({"federation.rounds": 2}, 2, "needs more; give --rounds"),
        ({}, 5, "can be forked after rounds 1 to 4"),
        ({"local.keep_optimizer": True, "federation.rounds": 5}, 2, "holds no state of this optimiser"),
    ],
    ids=str,
)
def test_a_fork_that_cannot_be_continued_is_refused_and_leaves_nothing(
    four: Path, changes: Mapping[str, Value], at: int, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason):
        raffed.fork(four, changes, tmp_path / "fork", at=at)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"local.epochs": 2.0},
        {"federation.participation": 1.0},
        {"seed": 1},
        {"clock.seconds": 0.5},
        {"clock.buffer": 1},
        {"clock.server": "waits", "clock.buffer": 0},
        {"clock.server": "waits", "clock.buffer": 0, "clock.speeds": ""},
    ],
    ids=str,
)
def test_a_fork_keeps_who_arrived_when_at_a_server_that_does_not_wait(
    buffered: Path, changes: Mapping[str, Value], tmp_path: Path
) -> None:
    """Clients still train when it begins, and the checkpoint holds the models from which they began."""
    with pytest.raises(UsageError, match="its server does not wait"):
        raffed.fork(buffered, {**changes, "federation.rounds": 4}, tmp_path / "fork")
    assert list(tmp_path.iterdir()) == []


def test_a_fork_of_a_server_that_does_not_wait_may_change_what_takes_no_time(
    buffered: Path, tmp_path: Path
) -> None:
    changes: dict[str, Value] = {"local.lr": 0.01, "clock.mixing": 0.5, "federation.rounds": 4}
    raffed.fork(buffered, changes, tmp_path / "fork", at=2)
    assert verified(tmp_path / "fork") == []


def test_a_fork_keeps_the_clients_that_never_train(tmp_path: Path) -> None:
    """The seed decides who they are. With one that draws the same clients it goes on."""
    config = of(2, federation__unseen_clients=0.5, data__local_test=0.2)
    raffed.run(config, tmp_path / "run")
    same = [
        unseen_clients(config.federation, seed, 4) == unseen_clients(config.federation, config.seed, 4)
        for seed in range(1, 40)
    ]
    changes: dict[str, Value] = {"federation.rounds": 3, "seed": 1 + same.index(False)}
    with pytest.raises(UsageError, match="one that has trained is not unseen; leave both"):
        raffed.fork(tmp_path / "run", changes, tmp_path / "fork")
    assert not (tmp_path / "fork").exists()
    raffed.fork(tmp_path / "run", {**changes, "seed": 1 + same.index(True)}, tmp_path / "fork")


def largest(sizes: Sequence[int]) -> list[int]:
    """A selection of one's own: the client with the most training samples."""
    return [max(range(len(sizes)), key=sizes.__getitem__)]


def test_a_fork_keeps_the_sizes_by_which_its_run_chose_clients(tmp_path: Path) -> None:
    def chosen(seed: int) -> list[int]:
        return largest(prepare_run(of(2, seed=seed)).data.sizes)

    raffed.run(replace(of(2), federation=Federation(2, selection=largest)), tmp_path / "run")  # type: ignore[arg-type]
    other = next(seed for seed in itertools.count() if chosen(seed) != chosen(BASE.seed))
    with pytest.raises(UsageError, match="leave the data and the seed, as its selection"):
        raffed.fork(tmp_path / "run", {"seed": other, "federation.rounds": 3}, tmp_path / "fork")
    assert not (tmp_path / "fork").exists()
    same = next(seed for seed in itertools.count(1) if chosen(seed) == chosen(BASE.seed))
    raffed.fork(tmp_path / "run", {"seed": same, "federation.rounds": 3}, tmp_path / "fork")
    assert verified(tmp_path / "fork") == []


def test_a_fork_uses_the_data_of_its_run_and_refuses_changed_ones(tmp_path: Path) -> None:
    """As `resume` does: the arrays in the cache are those of the recorded hash, and so must the file's be."""
    table = tmp_path / "t.csv"
    rows = [f"{i % 7},{i * i % 11},{i % 3}" for i in range(90)]
    table.write_text("\n".join(["a,b,y", *rows]) + "\n")
    cache = ArrayCache.of_user()
    run = tmp_path / "run"
    raffed.run(of(2, data__dataset=f"csv:{table}?label=y", data__samples=0, method="fedavg"), run)
    changes: dict[str, Value] = {"local.lr": 0.01, "federation.rounds": 3}
    table.write_text(table.read_text().replace("0,0,0", "5,5,0"))
    raffed.fork(run, changes, tmp_path / "from the cache")
    assert read_run(tmp_path / "from the cache")["data_sha256"] == read_run(run)["data_sha256"]
    shutil.rmtree(cache.folder)
    with pytest.raises(DataFileError, match="has changed since the run"):
        raffed.fork(run, changes, tmp_path / "fork")
    assert not (tmp_path / "fork").exists()


opacus = pytest.mark.skipif(
    importlib.util.find_spec("opacus") is None, reason="the extra `privacy` is not installed"
)
NOISY: dict[str, Value] = {"privacy__clip": 1.0, "privacy__noise": 2.0}


@opacus
def test_a_fork_counts_the_epsilon_of_the_rounds_before_it_at_their_participation(tmp_path: Path) -> None:
    """Two rounds of everybody and one of a quarter: RDP adds up, so ε is at least that of the two rounds."""
    run, out = tmp_path / "run", tmp_path / "fork"
    raffed.run(of(2, method="fedavg", federation__participation=1.0, **NOISY), run)
    raffed.fork(run, {"federation.participation": 0.25, "federation.rounds": 3}, out, at=2)
    found = {
        row["metric"]: row["value"]
        for row in read_metrics(out).to_pylist()
        if row["round"] == 3 and row["metric"] in ("epsilon", "epsilon_poisson")
    }
    assert found["epsilon"] == epsilon(2.0, 3, 1e-5)
    assert found["epsilon_poisson"] == epsilon_of(2.0, {1.0: 2, 0.25: 1}, 1e-5)
    assert epsilon(2.0, 2, 1e-5) <= found["epsilon_poisson"] < found["epsilon"]
    assert verified(out) == []


@opacus
def test_noise_is_never_combined_with_a_choice_by_loss_whose_epsilon_nobody_counts(tmp_path: Path) -> None:
    """Neither in a run, nor by forking one to noise, nor one with noise to such a choice."""
    by_loss: dict[str, Value] = {"federation__selection": "power_of_choice"}
    with pytest.raises(UsageError, match="leave one of them out"):
        prepare_run(of(2, method="fedavg", **by_loss, **NOISY))
    raffed.run(of(2, method="fedavg", **by_loss), tmp_path / "chosen")
    noise: dict[str, Value] = {"privacy.clip": 1.0, "privacy.noise": 2.0, "federation.rounds": 3}
    with pytest.raises(UsageError, match="a fork keeps privacy"):
        raffed.fork(tmp_path / "chosen", noise, tmp_path / "a")
    raffed.run(of(2, method="fedavg", **NOISY), tmp_path / "noisy")
    changes: dict[str, Value] = {"federation.selection": "power_of_choice", "federation.rounds": 3}
    with pytest.raises(UsageError, match="leave one of them out"):
        raffed.fork(tmp_path / "noisy", changes, tmp_path / "a")
    assert not (tmp_path / "a").exists()
