"""The results of several seeds in Python: `raffed.compare(..., seeds=5)`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.commands.progress import CommandProgress
from raffed.commands.running import one_ray, start_or_continue
from raffed.commands.seeds import SeedRun, in_processes, places, planned_seeds, with_one_process
from raffed.commands.side_by_side import Ending, Event, execute_side_by_side
from raffed.config.run import RunConfig
from raffed.config.validation import Json
from raffed.errors import NumericsError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from raffed.experiments.result import RunResult


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds.

    Attributes:
        mean: The mean, a fraction; NaN without any value.
        half: Half the width of its 95 % t-interval; NaN for fewer than three seeds, which are too few.
        seeds: Number of seeds that have a value.
    """

    mean: float
    half: float
    seeds: int

    def __str__(self) -> str:
        count = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        if math.isnan(self.half):
            return f"{self.mean:.4f} ({count}, too few for an interval)"
        return f"{self.mean:.4f} ± {self.half:.4f} (95 %, {count})"


@dataclass(frozen=True, repr=False)
class SeedResults:
    """The results of one method with several seeds.

    Attributes:
        results: Seed → the result of its run. Runs that failed are missing.
        failed: Seed → why its run failed.
    """

    results: Mapping[int, RunResult]
    failed: Mapping[int, str]

    def __repr__(self) -> str:
        return f"SeedResults(accuracy={self.accuracy}, personalization={self.personalization})"

    @property
    def accuracy(self) -> SeedMean:
        """Accuracy of the global model on the global test set after the last evaluated round."""
        return _mean([one.accuracy for one in self.results.values()])

    @property
    def personalization(self) -> SeedMean:
        """Accuracy of the personalised models after the last evaluated round (`RunResult`)."""
        return _mean([one.personalization for one in self.results.values()])

    def to_pandas(self) -> pd.DataFrame:
        """Return the metric rows of all runs as one pandas data frame; the column `seed` tells them apart."""
        import pandas as pd

        return pd.concat([one.to_pandas() for one in self.results.values()], ignore_index=True)


def _mean(values: Sequence[float]) -> SeedMean:
    from raffed.analysis.metrics.intervals import reported_interval

    known = [value for value in values if not math.isnan(value)]
    mean = sum(known) / len(known) if known else math.nan
    return SeedMean(mean, reported_interval(known), len(known))


def seed_results(
    configs: Mapping[str, RunConfig], out: Path, seeds: int, shown: CommandProgress, accept: bool = False
) -> tuple[dict[str, SeedResults], list[Path]]:
    """Run every seed of every method, or what is left of them.

    Args:
        configs: Method → its run with the first seed.
        out: The folder of everything.
        seeds: Number of seeds.
        shown: Is told what happens.
        accept: Whether own code may have changed since runs were begun.

    Returns:
        Method → its results, and the folders of all runs that have begun.

    Raises:
        UsageError: The request is refused.
        NumericsError: Every run failed.
    """
    placed = {
        name: replace(config, runtime=with_one_process(config.runtime)) for name, config in configs.items()
    }
    runs = planned_seeds(placed, out, seeds, accept=accept)
    side_by_side = in_processes(runs)
    with one_ray(runs[0].config):
        failed = _side_by_side(runs, shown) if side_by_side else {}
        results: dict[SeedRun, RunResult] = {}
        for run in runs:
            if run in failed:
                continue
            if not side_by_side:
                shown.begin(f"{run.title} → {run.folder}")
            try:
                results[run] = start_or_continue(run.config, run.folder, shown.round, accept=accept)
            except NumericsError as error:
                failed[run] = " ".join(str(error).split())
                shown.say(f"{run.title}: {failed[run]}")
    if not results:
        raise NumericsError(f"every run failed: {'; '.join(dict.fromkeys(failed.values()))}")
    found = {
        name: SeedResults(
            {run.seed: result for run, result in results.items() if run.method == name},
            {run.seed: why for run, why in failed.items() if run.method == name},
        )
        for name in configs
    }
    return found, [run.folder for run in runs if run in results or run.folder.exists()]


def _side_by_side(runs: Sequence[SeedRun], shown: CommandProgress) -> dict[SeedRun, str]:
    """Execute the runs that are not finished, each in a process of its own. Return why some failed."""
    left = [run for run in runs if not run.finished]
    if not left:
        return {}
    endings = execute_shown(left, shown)
    refused = next((ending.why for ending in endings.values() if ending.refused), None)
    if refused is not None:
        raise UsageError(refused)
    return {run: one.why or one.state for run, one in endings.items() if one.state != "finished"}


def execute_shown(runs: Sequence[SeedRun], shown: CommandProgress) -> dict[SeedRun, Ending]:
    """Execute runs at the same time, each in a process of its own, and tell `shown` what happens."""
    return execute_side_by_side(runs, places(runs[0].config.runtime, len(runs)), _Told(shown), lambda: False)


class _Told:
    """Tells a `CommandProgress` about runs that execute at the same time."""

    def __init__(self, progress: CommandProgress) -> None:
        self._progress = progress

    def started(self, run: SeedRun) -> None:
        self._progress.say(f"{run.title} → {run.folder}")

    def heard(self, run: SeedRun, event: Event) -> None:
        if event["event"] == "finished":
            self._progress.say(f"{run.title}: finished, accuracy {_shown(event['accuracy'])}")
        elif event["event"] in ("failed", "error"):
            self._progress.say(f"{run.title}: {event['message']}")

    def said(self, line: str) -> None:
        self._progress.say(line)

    def warned(self, text: str) -> None:
        """Count nothing: a warning is said once."""


def _shown(value: Json) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else "–"


__all__ = ["SeedMean", "SeedResults", "execute_shown", "seed_results"]
