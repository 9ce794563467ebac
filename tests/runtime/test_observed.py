"""What a run shows besides its files: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import raffed
from raffed.results.runfile import read_run
from raffed.runs.events import RoundEvent
from raffed.trackers import MLflow, TensorBoard, tracked_id
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
