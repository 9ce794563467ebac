"""Where else the rounds of a run are shown: sinks, which are watchers (`raffed.run(..., watch=)`) that are closed at the end."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from raffed.core.errors import UsageError
from raffed.results.runfile import read_run

if TYPE_CHECKING:
    from raffed.experiments.federation import RoundEvent


class Sink(Protocol):
    """Takes a run's rounds, in order. A run that goes on after a stop brings the rest of them."""

    def __call__(self, event: RoundEvent) -> None: ...

    def close(self) -> None:
        """Everything shown so far is on its way."""
        ...


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
    Raises UsageError without the package mlflow (extra `mlflow`).
    """

    def __init__(self, uri: str, folder: Path, experiment: str = "raffed") -> None:
        _needs("mlflow", "MLflow")
        from mlflow import MlflowClient

        self._client, self._folder, self._experiment, self._run = MlflowClient(tracking_uri=uri), folder, experiment, ""

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
        name, client = str(about["run_id"]), self._client
        known = client.get_experiment_by_name(self._experiment)
        home = client.create_experiment(self._experiment) if known is None else known.experiment_id
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
    to the W&B run of the same id. Raises UsageError without the package wandb (extra `wandb`).
    """

    def __init__(self, project: str, folder: Path) -> None:
        _needs("wandb", "Weights & Biases")
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


def _needs(package: str, title: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"the {title} sink needs {package}: pip install 'raffed[{package}]'")


def together(watchers: Sequence[Callable[[RoundEvent], None]]) -> Callable[[RoundEvent], None]:
    """One watcher that calls these in order."""

    def watch(event: RoundEvent) -> None:
        for one in watchers:
            one(event)

    return watch
