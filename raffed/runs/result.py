"""The outcome of a run, read from its folder."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.errors import RunFolderError
from raffed.results.lock import gone, written
from raffed.results.metric import Metric
from raffed.results.metrics import PERSONAL_ACCURACY, TEST_ACCURACY
from raffed.results.runfile import RUN_FILE, read_run

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class RunResult:
    """The outcome of a run.

    Attributes:
        folder: The run's folder. None if the run had no `out`, or if its results are at a URL.
        state: "finished", "stopped" or "failed", as in run.json.
        hashes: SHA-256 of the weights, of the client states (`vaults`) and of the metric rows without their
            seconds. Empty unless `state` is "finished".
        ended_early: Why `federation.stop_when` ended the run before its last round; empty if it did not.
        best_round: Number of rounds done at the best model, which is chosen on the clients' validation parts
            alone; None without one.
        metrics: All metric rows as a pyarrow table in long form. `raffed metrics`
            lists them.
    """

    folder: Path | None
    state: str
    hashes: dict[str, str]
    metrics: pa.Table
    ended_early: str = ""
    best_round: int | None = None

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", {str(self.folder)!r}"
        accuracies = f"accuracy={self.accuracy:.4g}, personalization={self.personalization:.4g}"
        return f"RunResult({self.state}, {accuracies}{where})"

    @property
    def accuracy(self) -> float:
        """Accuracy of the global model on the global test set after the last evaluated round.

        Returns:
            A fraction in [0, 1]; NaN if there was no evaluation.
        """
        return self._last(TEST_ACCURACY)

    @property
    def personalization(self) -> float:
        """Mean accuracy of the personalised models after the last evaluated round.

        Each participant of that round is scored on its own local test part, and the mean is unweighted.

        Returns:
            A fraction in [0, 1]; NaN if the clients have no local test parts.
        """
        return self._last(PERSONAL_ACCURACY)

    @property
    def accuracy_best(self) -> tuple[float, int]:
        """Highest accuracy of the global model on the global test set, and the number of rounds done then.

        Many papers print this number. It is chosen on the test set, so it flatters every method a little.

        Returns:
            A fraction in [0, 1] and the round, the first one if several are equal; (NaN, 0) without an
            evaluation.
        """
        return _best(self._values(TEST_ACCURACY))

    @property
    def personalization_by_samples(self) -> tuple[float, float, int]:
        """Accuracy of the personalised models in which every test sample counts once: Σ correct / Σ samples.

        Returns:
            The fraction after the last evaluated round, the highest one, and the round of that;
            (NaN, NaN, 0) if the clients have no local test parts.
        """
        from raffed.results.by_samples import by_samples  # imported late because it loads pyarrow

        rows = by_samples(self.metrics)
        rows = rows[(rows["model"] == "personal") & (rows["metric"] == "accuracy")].sort_values("round")
        values = list(zip(rows["round"].tolist(), rows["value"].tolist(), strict=True))
        return (values[-1][1] if values else math.nan), *_best(values)

    def to_pandas(self) -> pd.DataFrame:
        """Return all metric rows as a pandas data frame in long form (see `raffed.results.schema`)."""
        frame: pd.DataFrame = self.metrics.to_pandas()
        return frame

    def _last(self, metric: Metric) -> float:
        values = self._values(metric)
        return values[-1][1] if values else math.nan

    def _values(self, metric: Metric) -> list[tuple[int, float]]:
        from raffed.results.by_samples import common_values

        return common_values(self.metrics, metric)


def _best(values: Iterable[tuple[int, float]]) -> tuple[float, int]:
    """Return the highest value and its first round; (NaN, 0) without a number."""
    known = [(value, -round) for round, value in values if not math.isnan(value)]
    value, round = max(known, default=(math.nan, 0))
    return value, -round


def result_of(path: Path, told: Path | None) -> RunResult:
    """Return the result of the run in a folder.

    `told` is the folder as the caller named it, or None if the folder is not kept.
    """
    from raffed.results.writer import read_metrics  # imported late because it loads pyarrow

    about = read_run(path)
    best = about.get("best")
    return RunResult(
        told,
        about["state"],
        about.get("hashes", {}),
        read_metrics(path),
        about.get("ended_early", ""),
        None if best is None else best["round"],
    )


def result_there(path: Path, told: Path | None) -> RunResult:
    """Return the result of a run that this process has just executed. `told` is that of `result_of`.

    Raises:
        FolderLostError: The folder is no longer there. That is not a refused request, because the run was
            executed.
    """
    with written(path):
        try:
            return result_of(path, told)
        except (RunFolderError, OSError) as error:
            if not (path / RUN_FILE).exists():
                raise gone(path) from error
            raise
