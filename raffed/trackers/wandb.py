"""Show a run's rounds in Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.runs.events import RoundEvent
from raffed.trackers.base import PATIENCE, needs, numbers, tracked_id


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
        os.environ.setdefault(
            "WANDB_FINISH_TIMEOUT", str(PATIENCE)
        )  # by default it waits for its server at exit without a limit
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
        self._run.log(
            numbers(event), step=event.round, commit=True
        )  # shows this round now and not with the next one

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
