"""Metrics of the user's own: their rows, and their values of the global model.

The clients' own models are measured where the clients train (runtime/worker.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from raffed.core.measures.own_metric import FRACTION as FRACTION_WORD
from raffed.core.measures.own_metric import OwnMetric
from raffed.core.messages import Broadcast
from raffed.core.round import EVAL_CHUNK, joined
from raffed.core.training.network import Network
from raffed.data.transforms import prepare_inputs
from raffed.results.metric import FRACTION, Level, Metric, Unit
from raffed.results.metrics import METRICS
from raffed.results.row import Row
from raffed.runs.server_device import ServerDevice
from raffed.runtime.reports import Report
from raffed.runtime.setup import Setup

EACH: tuple[Level, ...] = ("client", "mean")
WHERE: Mapping[tuple[str, str], tuple[tuple[Level, ...], str]] = {
    ("global", "test"): (("global",), "the aggregated model on the test set"),
    ("global", "val"): (("global",), "the aggregated model on the validation parts of all clients"),
    ("personal", "local_test"): (EACH, "each participant's personalised model on its own test part"),
    ("personal", "val"): (EACH, "each participant's personalised model on its own validation part"),
}


def declared(own: OwnMetric) -> dict[tuple[str, str], Metric]:
    """Return the rows that a metric has, by model and split, and let METRICS know them.

    Raises:
        UsageError: One of raffed's own metrics has this name.
    """
    unit = FRACTION if own.unit == FRACTION_WORD else Unit(own.unit)
    return {
        (model, split): METRICS.admit(
            Metric(
                own.name,
                model,
                split,
                unit,
                levels,
                own.better,
                "every evaluated round, with --metric",
                f"{own.meaning}; {what}",
                "samples; of the mean: clients",
            )
        )
        for (model, split), (levels, what) in WHERE.items()
    }


@dataclass(frozen=True)
class ModelScores:
    """What the global model says of the samples of a split: scores [n, C], and the labels [n]."""

    whole: Broadcast
    split: str

    def __call__(self, net: Network, setup: Setup) -> tuple[Tensor, Tensor]:
        pool, rows = setup.scored_rows[self.split]
        data = setup.dataset
        inputs, answers = (data.x_test, data.y_test) if pool == "test" else (data.x, data.y)
        state = joined(setup.method, self.whole, None, net)
        labels, found = torch.from_numpy(np.array(answers[rows])), []
        for first in range(0, len(rows), EVAL_CHUNK):
            part = slice(first, first + EVAL_CHUNK)
            x = prepare_inputs(inputs[rows[part]].copy(), setup.transform, data.max_value)
            x = net.arranged(x.to(net.device))
            found += [one.cpu() for one, _, _ in net.chunks(state, x, labels[part], EVAL_CHUNK)]
        return torch.cat(found), labels


class OwnMeasures:
    """Makes the rows of a run's own metrics.

    Args:
        setup: The run.
        device: Where the global model is applied to the test set: where clients train.
    """

    def __init__(self, setup: Setup, device: ServerDevice) -> None:
        self._setup, self._device = setup, device
        self._metrics = {one: declared(one) for one in setup.own_metrics}

    def rows(self, done: int, whole: Broadcast | None, reports: Sequence[Report]) -> list[Row]:
        """Return the rows of an evaluated round.

        Args:
            done: Number of rounds done.
            whole: The global model, or None if there is none or the round is not evaluated.
            reports: What the participants reported.
        """
        made = []
        if self._metrics and whole is not None:
            for split in ("test", "val"):
                made += self._of_global(done, whole, split)
        for own, metrics in self._metrics.items():
            for split in ("local_test", "val"):
                made += _of_clients(done, metrics["personal", split], own.name, split, reports)
        return made

    def means(self, rows: Sequence[Row]) -> dict[str, float]:
        """Return "MODEL SPLIT METRIC" → value, of the rows of these metrics that are of no single client."""
        names = {own.name for own in self._metrics}
        kept = (row for row in rows if row.metric in names and row.client is None)
        return {f"{row.model} {row.split} {row.metric}": row.value for row in kept}

    def _of_global(self, done: int, whole: Broadcast, split: str) -> list[Row]:
        if not len(self._setup.scored_rows[split][1]):
            return []
        scores, labels = self._device.do(ModelScores(whole, split))
        return [
            metrics["global", split].row(done, own.measure(scores, labels), n=len(labels))
            for own, metrics in self._metrics.items()
        ]


def _of_clients(done: int, metric: Metric, name: str, split: str, reports: Sequence[Report]) -> list[Row]:
    """Return a row of each participant that was measured, and the unweighted mean of the numbers."""
    found = [(r.client, r.scores.own[split, name]) for r in reports if (split, name) in r.scores.own]
    rows = [metric.row(done, one.value, client=client, n=one.n) for client, one in found]
    known = [one.value for _, one in found if not math.isnan(one.value)]
    if found:
        rows.append(metric.row(done, sum(known) / len(known) if known else math.nan, n=len(known)))
    return rows


__all__ = ["WHERE", "OwnMeasures", "declared"]
