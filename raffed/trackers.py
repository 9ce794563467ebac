"""Sinks for TensorBoard, MLflow and Weights & Biases: watchers (`raffed.run(..., watch=)`)
that show a run's rounds elsewhere and are closed at the end.

A run does not depend on them (`Guarded`). A sink that cannot be opened is an error before work starts. A sink
that fails later is dropped with a warning.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from raffed.errors import RaffedError, UsageError
from raffed.results.runfile import read_run
from raffed.results.storage import named
from raffed.results.text import without_secrets
from raffed.runs.events import RoundEvent

PATIENCE = 60.0  # seconds that a sink may take to open, for a round, and to close
# Characters shown of both ends of a library's message. A message can have pages, with the reason at its end.
TEXT = 160
# Seconds; MLflow's own values are 7 and 120
MLFLOW = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes a run's rounds, in order. A resumed run brings only the rest of them.

    Opening a sink contacts whatever it shows the rounds to. Any of its calls may raise or hang; see
    `Guarded`.
    """

    def __call__(self, event: RoundEvent) -> None: ...

    def close(self) -> None:
        """Send everything that is still to be shown."""
        ...


class Guarded:
    """A sink that a run does not depend on.

    `make` opens it before work starts. The first failure after that drops it: one warning says what will be
    missing, nothing more is shown or closed, and the run goes on. Every call runs in a thread of its own, for
    which the run waits `patience` seconds. Libraries of trackers retry for minutes, and a round must not take
    that long.

    Raises:
        UsageError: `make` raises an error or does not return in time.
    """

    def __init__(self, title: str, make: Callable[[], Sink], patience: float = PATIENCE) -> None:
        self._title, self._patience = without_secrets(title), patience
        opened: list[Sink] = []
        error = _failure(lambda: opened.append(make()), patience)
        if isinstance(error, RaffedError):
            raise error
        if error is not None:
            raise UsageError(
                f"{self._title} cannot be opened ({_told(error)}); correct it or leave it out"
            ) from error
        self._sink: Sink | None = opened[0]

    def __call__(self, event: RoundEvent) -> None:
        if self._sink is not None:
            lost = f"the rounds from {event.round} on are missing there"
            self._kept(_failure(partial(self._sink, event), self._patience), lost)

    def close(self) -> None:
        if self._sink is not None:
            self._kept(_failure(self._sink.close, self._patience), "what was shown last may be missing there")
            self._sink = None

    def _kept(self, error: BaseException | None, lost: str) -> None:
        if error is not None:
            self._sink = None
            text = (
                "%s failed (%s) and is left out from here on: %s. The run goes on, its own files have every "
                "round"
            )
            log.warning(text, self._title, _told(error), lost)


def numbers(event: RoundEvent) -> dict[str, float]:
    """Return what a sink shows of a round: all its numbers except that of the round itself."""
    pairs = event.as_dict().items()
    return {
        name: float(value) for name, value in pairs if name not in ("round", "rounds") and value is not None
    }


def _failure(work: Callable[[], object], patience: float) -> BaseException | None:
    """Execute `work` in a thread of its own and return what it raises; None if it succeeds.

    The thread is left behind after `patience` seconds.
    """
    done: Future[None] = Future()
    Thread(target=_settle, args=(work, done), name="raffed-sink", daemon=True).start()
    try:
        return done.exception(patience)
    except TooLate:
        return TimeoutError(f"no answer within {patience:g} s")


def _settle(work: Callable[[], object], done: Future[None]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (reported by the waiting thread; libraries raise any error)
        done.set_exception(error)
    else:
        done.set_result(None)


def _told(error: BaseException) -> str:
    """Return an error as one line of bounded length, without secrets."""
    text = without_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    return text if len(text) <= 2 * TEXT else f"{text[:TEXT]} … {text[-TEXT:]}"


def tracked_id(run_id: str, folder: Path) -> str:
    """Return the name of a run in a tracker, by its id and its place.

    A stranger's folder may have the id of a run of the user's. It lies elsewhere, so it does not continue
    that run in the tracker.
    """
    return hashlib.sha256(f"{named(folder.absolute())}\n{run_id}".encode()).hexdigest()[:16]


def needs(package: str, title: str) -> None:
    """Raise UsageError if the package of an extra is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"the {title} sink needs {package}: pip install 'raffed[{package}]'")


class TensorBoard:
    """Write every number of a RoundEvent as a scalar `raffed/NAME` over the rounds, in an event file in a
    folder.

    Raises:
        UsageError: The package tensorboard is not installed (extra `tensorboard`).
    """

    def __init__(self, folder: Path | str) -> None:
        needs("tensorboard", "TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def __call__(self, event: RoundEvent) -> None:
        for name, value in numbers(event).items():
            self._writer.add_scalar(f"raffed/{name}", value, event.round)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """Show a run on a tracking server (http://…) or in a data base (sqlite:///…).

    The configuration becomes parameters, and the numbers of a RoundEvent become metrics over the rounds. The
    final status is FINISHED, or KILLED if the run stopped before its end. `folder` is the run's own. A run
    that is resumed in the same place continues its MLflow run, found by the tag `raffed.tracked`. The
    experiment is looked up or made at once, the MLflow run with the first round.

    Raises:
        UsageError: The package mlflow is not installed (extra `mlflow`).
        Exception: MLflow raises its own errors for an address without a server.
    """

    def __init__(self, uri: str, folder: Path, experiment: str = "raffed") -> None:
        needs("mlflow", "MLflow")
        for name, value in MLFLOW.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self._client, self._folder, self._run = MlflowClient(tracking_uri=uri), folder, ""
        known = self._client.get_experiment_by_name(experiment)
        self._home = self._client.create_experiment(experiment) if known is None else known.experiment_id

    def __call__(self, event: RoundEvent) -> None:
        from mlflow.entities import Metric

        self._run = self._run or self._begun()
        now = int(1000 * time.time())
        self._client.log_batch(
            self._run, [Metric(name, value, now, event.round) for name, value in numbers(event).items()]
        )

    def close(self) -> None:
        if self._run:
            finished = read_run(self._folder).get("state") == "finished"
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _begun(self) -> str:
        import pandas as pd
        from mlflow.entities import Param

        about = read_run(self._folder)
        name, client, home = str(about["run_id"]), self._client, self._home
        tags = {"raffed.run_id": name, "raffed.tracked": tracked_id(name, self._folder)}
        before = client.search_runs([home], f"tags.`raffed.tracked` = '{tags['raffed.tracked']}'")
        if before:
            client.update_run(before[0].info.run_id, status="RUNNING")
            return str(before[0].info.run_id)
        run_id = str(client.create_run(home, run_name=self._folder.name, tags=tags).info.run_id)
        settings = pd.json_normalize(about["config"], sep=".").iloc[0]
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in settings.items()])
        return run_id


class WeightsAndBiases:
    """Show the configuration and the numbers of each RoundEvent in a Weights & Biases project.

    W&B's own settings decide where the data go (with WANDB_MODE=offline below `folder`, the run's own). A
    run that is resumed in the same place continues its W&B run. Unless it is offline, the key is checked with
    the server at once. The W&B run begins with the first round. What W&B could not send stays below `folder`
    for `wandb sync`.

    Raises:
        UsageError: The package wandb (extra `wandb`) or a key is missing.
        Exception: W&B raises its own errors for a server that refuses the key.
    """

    def __init__(self, project: str, folder: Path) -> None:
        needs("wandb", "Weights & Biases")
        # By default it waits for its server at exit without a limit
        os.environ.setdefault("WANDB_FINISH_TIMEOUT", str(PATIENCE))
        import wandb

        if wandb.setup().settings.mode not in ("offline", "dryrun", "disabled") and not wandb.login(
            verify=True
        ):
            raise UsageError("Weights & Biases has no key; run `wandb login`, or set WANDB_MODE=offline")
        self._project, self._folder = project, folder
        self._run: Any = None

    def __call__(self, event: RoundEvent) -> None:
        if self._run is None:
            self._run = self._begun()
        # Shows this round now and not with the next one
        self._run.log(numbers(event), step=event.round, commit=True)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _begun(self) -> Any:
        import wandb

        about = read_run(self._folder)
        return wandb.init(
            project=self._project,
            id=tracked_id(str(about["run_id"]), self._folder),
            name=self._folder.name,
            resume="allow",
            config=about["config"],
            dir=self._folder,
            settings=wandb.Settings(console="off", silent=True),  # only raffed writes to the screen
        )
