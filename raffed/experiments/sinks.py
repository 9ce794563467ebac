"""Where else the rounds of a run are shown: sinks, which are watchers (`raffed.run(..., watch=)`) that are closed at the end.

A run depends on none of them (`Guarded`): one that cannot be opened is an error before work starts, one that fails later is
dropped with a warning.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from raffed.core.errors import RaffedError, UsageError
from raffed.core.redact import without_secrets
from raffed.results.runfile import read_run

if TYPE_CHECKING:
    from raffed.experiments.federation import RoundEvent

PATIENCE = 60.0  # seconds that a sink may take to open, for a round, and to close
MLFLOW = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}  # seconds; MLflow's own: 7 and 120
TEXT = 160  # characters of either end of a library's message that are shown: theirs can be pages, with the reason at the end
log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes a run's rounds, in order. A run that goes on after a stop brings the rest of them.

    Opening one reaches whatever it shows them to. Any of its calls may raise or hang: see `Guarded`.
    """

    def __call__(self, event: RoundEvent) -> None: ...

    def close(self) -> None:
        """Everything shown so far is on its way."""
        ...


class Guarded:
    """A sink that a run does not depend on. `make` opens it, before work starts. From then on its first failure drops it: one
    warning says what is missing there, nothing is shown or closed any more, and the run goes on.

    Every call has a thread of its own that is waited for `patience` seconds: libraries of trackers try again for minutes, and
    a round must not take as long. Raises UsageError if `make` does, fails or gives no answer.
    """

    def __init__(self, title: str, make: Callable[[], Sink], patience: float = PATIENCE) -> None:
        self._title, self._patience = without_secrets(title), patience
        opened: list[Sink] = []
        error = _failure(lambda: opened.append(make()), patience)
        if isinstance(error, RaffedError):
            raise error
        if error is not None:
            raise UsageError(f"{self._title} cannot be opened ({_told(error)}); correct it or leave it out") from error
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
            text = "%s failed (%s) and is left out from here on: %s. The run goes on, its own files have every round"
            log.warning(text, self._title, _told(error), lost)


class TensorBoard:
    """Every number of a RoundEvent as a scalar `raffed/NAME` over the rounds, in an event file in a folder.

    Raises UsageError without the package tensorboard (extra `tensorboard`).
    """

    def __init__(self, folder: Path | str) -> None:
        _needs("tensorboard", "TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def __call__(self, event: RoundEvent) -> None:
        for name, value in numbers(event).items():
            self._writer.add_scalar(f"raffed/{name}", value, event.round)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """A run of a tracking server (http://…) or data base (sqlite:///…): the configuration as parameters, a RoundEvent's numbers
    as metrics over the rounds, in the end FINISHED or, where it stopped before, KILLED.

    `folder` is the run's own; a run that goes on adds to the MLflow run of the experiment whose tag `raffed.run_id` is its id.
    The experiment is looked up or made at once, the MLflow run with the first round. Raises UsageError without the package
    mlflow (extra `mlflow`), and what MLflow raises of an address where no server is.
    """

    def __init__(self, uri: str, folder: Path, experiment: str = "raffed") -> None:
        _needs("mlflow", "MLflow")
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
        self._client.log_batch(self._run, [Metric(name, value, now, event.round) for name, value in numbers(event).items()])

    def close(self) -> None:
        if self._run:
            finished = read_run(self._folder).get("state") == "finished"
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _begun(self) -> str:
        import pandas as pd
        from mlflow.entities import Param

        about = read_run(self._folder)
        name, client, home = str(about["run_id"]), self._client, self._home
        before = client.search_runs([home], f"tags.`raffed.run_id` = '{name}'")
        if before:
            client.update_run(before[0].info.run_id, status="RUNNING")
            return str(before[0].info.run_id)
        made = str(client.create_run(home, run_name=self._folder.name, tags={"raffed.run_id": name}).info.run_id)
        settings = pd.json_normalize(about["config"], sep=".").iloc[0]
        client.log_batch(made, params=[Param(key, str(value)) for key, value in settings.items()])
        return made


class WeightsAndBiases:
    """A run of a Weights & Biases project: the configuration, and a RoundEvent's numbers over the rounds.

    Where it goes is for W&B's own settings to say (WANDB_MODE=offline: below `folder`, the run's own). A run that goes on adds
    to the W&B run of the same id. Unless it is offline, the key is checked with the server at once; the W&B run begins with the
    first round. What W&B could not send lies below `folder` for `wandb sync`. Raises UsageError without the package wandb (extra
    `wandb`) or a key, and what W&B raises of a server that does not take it.
    """

    def __init__(self, project: str, folder: Path) -> None:
        _needs("wandb", "Weights & Biases")
        os.environ.setdefault("WANDB_FINISH_TIMEOUT", str(PATIENCE))  # by default it waits for its server at exit, however long
        import wandb

        if wandb.setup().settings.mode not in ("offline", "dryrun", "disabled") and not wandb.login(verify=True):
            raise UsageError("Weights & Biases has no key: `wandb login`, or WANDB_MODE=offline")
        self._project, self._folder = project, folder
        self._run: Any = None

    def __call__(self, event: RoundEvent) -> None:
        if self._run is None:
            self._run = self._begun()
        self._run.log(numbers(event), step=event.round, commit=True)  # shown at once, not with the next round

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _begun(self) -> Any:
        import wandb

        about = read_run(self._folder)
        return wandb.init(
            project=self._project, id=str(about["run_id"]), name=self._folder.name, resume="allow", config=about["config"],
            dir=self._folder, settings=wandb.Settings(console="off", silent=True),  # the screen is raffed's
        )  # fmt: skip


def numbers(event: RoundEvent) -> dict[str, float]:
    """What a sink shows of a round: all its numbers but the round's own."""
    found = event.as_dict().items()
    return {name: float(value) for name, value in found if name not in ("round", "rounds") and value is not None}


def _failure(work: Callable[[], object], patience: float) -> BaseException | None:
    """What `work` raises, done in a thread of its own, which is left behind after `patience` seconds; None if it was done."""
    done: Future[None] = Future()
    Thread(target=_settle, args=(work, done), name="raffed-sink", daemon=True).start()
    try:
        return done.exception(patience)
    except TooLate:
        return TimeoutError(f"no answer within {patience:g} s")


def _settle(work: Callable[[], object], done: Future[None]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 (told where it is waited for: libraries raise what they like)
        done.set_exception(error)
    else:
        done.set_result(None)


def _told(error: BaseException) -> str:
    """An error in one line of bounded length, without secrets."""
    text = without_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    return text if len(text) <= 2 * TEXT else f"{text[:TEXT]} … {text[-TEXT:]}"


def _needs(package: str, title: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"the {title} sink needs {package}: pip install 'raffed[{package}]'")


def together(watchers: Sequence[Callable[[RoundEvent], None]]) -> Callable[[RoundEvent], None]:
    """One watcher that calls these in order."""

    def watch(event: RoundEvent) -> None:
        for one in watchers:
            one(event)

    return watch
