"""Show a run's rounds in MLflow."""

from __future__ import annotations

import os
import time
from pathlib import Path

from raffed.results.runfile import read_run
from raffed.runs.events import RoundEvent
from raffed.trackers.base import needs, numbers, tracked_id

# Seconds; MLflow's own values are 7 and 120
MLFLOW = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


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
        made = str(client.create_run(home, run_name=self._folder.name, tags=tags).info.run_id)
        settings = pd.json_normalize(about["config"], sep=".").iloc[0]
        client.log_batch(made, params=[Param(key, str(value)) for key, value in settings.items()])
        return made
