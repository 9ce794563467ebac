"""What a run shows besides its files: JSON logs, TensorBoard, Ray's metrics."""

from __future__ import annotations

import importlib.util
import json
import logging
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import raffed
from raffed.errors import UsageError
from raffed.experiments.events import RoundEvent
from raffed.experiments.trackers.base import Sink, together, tracked_id
from raffed.experiments.trackers.mlflow import MLflow
from raffed.experiments.trackers.tensorboard import TensorBoard
from raffed.experiments.trackers.wandb import WeightsAndBiases
from raffed.results.runfile import read_run
from raffed.runtime import json_logs as runtime_json_logs
from tests.runtime.conftest import small

EVENT = RoundEvent(3, 9, 0.5, None, 0.75, 20, 1000, 2000, 4.0, straggling=2)


@pytest.fixture
def json_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logger = logging.getLogger("raffed")
    before = logger.handlers[:], logger.level, logger.propagate
    monkeypatch.setenv(runtime_json_logs.VARIABLE, "json")
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
    runtime_json_logs.of_run("")


@pytest.mark.usefixtures("json_logs")
def test_json_logs_have_a_line_a_round_with_the_run_s_id(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[RoundEvent] = []
    for name in ("a", "b"):  # configured once: no line is said twice
        raffed.run(small("fedavg", rounds=2), tmp_path / name, watch=seen.append)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    told = [line for line in lines if line["message"].startswith("round ")]
    assert [line["run_id"] for line in told] == [read_run(tmp_path / name)["run_id"] for name in "aabb"]
    assert [(line["round"], line["loss"], line["bytes_up"]) for line in told] == [
        (e.round, e.loss, e.bytes_up) for e in seen
    ]
    assert {line["level"] for line in told} == {"info"}


def test_a_record_with_an_error_and_a_number_that_is_none_is_one_line_of_json() -> None:
    record = logging.LogRecord("raffed.x", logging.WARNING, "", 0, "%s left", ("two\nlines",), None)
    record.fields = {"loss": float("nan"), "where": Path("a")}
    line = runtime_json_logs.JsonFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["loss"], read["where"], read["level"]) == (
        "two\nlines left",
        None,
        "a",
        "warning",
    )


def test_without_the_variable_logs_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runtime_json_logs.VARIABLE, raising=False)
    before = logging.getLogger("raffed").handlers[:]
    runtime_json_logs.configure()
    assert logging.getLogger("raffed").handlers == before


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


@pytest.mark.extras
@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="the extra `wandb` is not installed")
def test_weights_and_biases_keeps_the_rounds_of_a_run_under_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline: what would be sent lies below the run's folder."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    seen: list[RoundEvent] = []
    sink = WeightsAndBiases("raffed-tests", tmp_path)
    raffed.run(small("fedavg", rounds=2), tmp_path, watch=together([seen.append, sink]))
    summary = dict(sink._run.summary)
    sink.close()
    name = tracked_id(read_run(tmp_path)["run_id"], tmp_path)
    assert list(tmp_path.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb"))
    assert summary["loss"] == pytest.approx(seen[-1].loss)
    assert summary["_step"] == 2


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


@pytest.mark.parametrize("sink", [TensorBoard, partial(MLflow, "sqlite://"), partial(WeightsAndBiases, "p")])
def test_a_sink_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sink: Callable[[Path], Sink]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'raffed\[(tensorboard|mlflow|wandb)\]'"):
        sink(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_round_is_at_the_node_s_prometheus_endpoint() -> None:
    """20 clients in 4 s are 5 a second; Ray's agent collects every few seconds.

    The metrics live in an actor, as in a run. Elsewhere Ray would read in another environment how it counts.
    """
    import ray

    from raffed.runtime.ray_backend.metrics import RunMetrics

    actor = ray.remote(num_cpus=0)(RunMetrics).remote("run-x")
    for _ in range(2):
        ray.get(actor.__ray_call__.remote(lambda metrics: metrics(EVENT)))
    port = ray.nodes()[0]["MetricsExportPort"]
    wanted = {
        "clients_per_second": 5.0,
        "round": 3.0,
        "stragglers": 2.0,
        "bytes_up_total": 2000.0,
        "clients_total": 40.0,
    }
    deadline, found = time.monotonic() + 60, dict[str, float]()
    while time.monotonic() < deadline and not wanted.items() <= found.items():
        time.sleep(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = [
                line
                for line in answer.read().decode().splitlines()
                if "raffed_" in line and 'run_id="run-x"' in line
            ]
        found = {
            line.split("{")[0].removeprefix("ray_raffed_"): float(line.rsplit(" ", 1)[1]) for line in lines
        }
    assert wanted.items() <= found.items()
