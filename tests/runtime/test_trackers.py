"""What a run shows besides its files (TensorBoard, MLflow, Weights & Biases), on none of which it depends:
one that is not there is an error before work starts, one that fails later is dropped.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.runs.events import RoundEvent
from raffed.trackers import Guarded, MLflow, TensorBoard, tracked_id
from tests.cli.conftest import QUICK, Cli, cli  # noqa: F401
from tests.runtime.conftest import small, together


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="the extra `tensorboard` is not installed"
)
def test_tensorboard_reads_back_the_numbers_of_every_round(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen: list[RoundEvent] = []
    sink = TensorBoard(tmp_path)
    raffed.run(small("fedavg", rounds=2), watch=together([seen.append, sink]))
    sink.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    found = [(scalar.step, scalar.value) for scalar in read.Scalars("raffed/loss")]
    assert found == [(e.round, pytest.approx(e.loss, rel=1e-6)) for e in seen]
    assert "raffed/bytes_up" in read.Tags()["scalars"]
    assert "raffed/val" not in read.Tags()["scalars"]  # nothing was held out


@pytest.mark.apart
@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="the extra `mlflow` is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own, in SQLAlchemy
def test_mlflow_has_the_rounds_of_a_run_and_of_its_resumption_as_one_run(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri, folder, seen = f"sqlite:///{tmp_path}/m.db", tmp_path / "run", list[RoundEvent]()
    for status, work in (
        (
            "KILLED",
            lambda watch: raffed.run(small("fedavg", rounds=3), folder, watch=watch, stop=lambda: True),
        ),
        ("FINISHED", lambda watch: raffed.resume(folder, watch=watch)),
    ):
        sink = MLflow(uri, folder)
        work(together([seen.append, sink]))
        sink.close()
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("raffed")
        assert experiment is not None
        (found,) = client.search_runs([experiment.experiment_id])
        assert found.info.status == status
    assert found.data.tags["raffed.run_id"] == read_run(folder)["run_id"]
    assert found.data.params["method"] == "fedavg"
    assert found.data.params["federation.rounds"] == "3"
    assert found.data.params["data.dataset"] == "digits"
    told = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, "loss")]
    assert told == [(e.round, pytest.approx(e.loss)) for e in seen]
    assert len(told) == 3


def test_a_run_goes_on_in_a_tracker_only_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's folder may hold the id of a run of one's own, and any other text."""
    monkeypatch.chdir(tmp_path)
    here = tracked_id("run-1", Path("mine"))
    assert here == tracked_id("run-1", tmp_path / "mine")
    others = {tracked_id("run-1", tmp_path / "theirs"), tracked_id("run-2", Path("mine"))}
    assert len({here, *others}) == 3
    assert tracked_id("../' OR '1'='1", Path("mine")).isalnum()


class Failing:
    """A sink that raises, or hangs, at one of its calls: of round number `at`, or at "close"."""

    def __init__(self, at: int | str, fail: Callable[[], None]) -> None:
        self.at, self._fail, self.calls = at, fail, list[int | str]()

    def __call__(self, event: RoundEvent) -> None:
        self._called(event.round)

    def close(self) -> None:
        self._called("close")

    def _called(self, at: int | str) -> None:
        self.calls.append(at)
        if at == self.at:
            self._fail()


def refused(*_: object) -> None:
    raise ConnectionError("http://me:hidden@host:5000/api?token=hidden: refused\nafter 2 tries")


def hung() -> None:
    threading.Event().wait(20)


@pytest.mark.parametrize(
    ("fail", "at", "calls", "lost"),
    [
        (refused, 2, [1, 2], "refused after 2 tries.*the rounds from 2 on are missing there"),
        (hung, 1, [1], "no answer within 0.3 s.*the rounds from 1 on are missing there"),
        (hung, "close", [1, 2, 3, "close"], "what was shown last may be missing there"),
    ],
)
def test_a_sink_that_fails_is_dropped_with_one_warning_and_the_run_goes_on(
    fail: Callable[[], None],
    at: int | str,
    calls: list[int | str],
    lost: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink, seen = Failing(at, fail), list[RoundEvent]()
    guarded = Guarded("Board at http://me:hidden@host", lambda: sink, patience=0.3)
    result = raffed.run(small("fedavg", rounds=3), watch=together([guarded, seen.append]))
    guarded.close()
    assert result.hashes == raffed.run(small("fedavg", rounds=3)).hashes
    assert [event.round for event in seen] == [1, 2, 3]  # the watchers after it are still told
    assert sink.calls == calls  # neither tried again nor closed
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert re.match(rf"Board at http://…@host failed \(.*{lost}", warnings[0].getMessage())
    assert "hidden" not in warnings[0].getMessage()


@pytest.mark.parametrize("make", [refused, hung])
def test_a_sink_that_cannot_be_opened_is_an_error(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r"Board at http://…@host cannot be opened") as told:
        Guarded("Board at http://me:hidden@host", make, patience=0.3)
    assert "hidden" not in str(told.value)


def test_a_tracking_server_that_is_not_there_is_an_error_before_work_starts(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raffed.cli.running.MLflow", refused)
    tracked = ["--mlflow", "http://me:hidden@host:5000"]
    done = cli("run", *QUICK, "--rounds", "1", *tracked, "--out", tmp_path / "run")
    assert done.code == 2
    assert "MLflow at http://…@host:5000 cannot be opened (ConnectionError" in done.err
    assert "hidden" not in done.out + done.err
    assert not (tmp_path / "run").exists()
