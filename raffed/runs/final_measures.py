"""What `federation.measures` asks for around the last round, and metrics of the user's own.

So the result has the same bits wherever the clients train.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import plain_mean
from raffed.core.context import Spec
from raffed.core.measures.scores import by_batch, by_class, calibration_error, footprint, spread, worst_decile
from raffed.core.messages import Broadcast
from raffed.core.own_functions import FRACTION as FRACTION_WORD
from raffed.core.own_functions import OwnMetric
from raffed.core.params import State
from raffed.core.parts import ParameterSplit
from raffed.core.round import EVAL_CHUNK, joined
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.results import metrics
from raffed.results.metric import Level, Metric, Row, Unit
from raffed.results.metrics import CALIBRATION, FRACTION, METRICS, SPREAD, WORST_DECILE
from raffed.runtime.api import Report
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.setup import Setup
from raffed.runtime.setup_model import features_of


def before_last(setup: Setup, net: Network, spec: Spec, broadcast: Broadcast) -> list[Row]:
    """Measure the last round's broadcast.

    `memory` counts the numbers that a client holds (core/measures/scores.py) in a step on two test
    images.
    """
    x = prepare_inputs(setup.data.test_set()[0][:2].copy(), setup.data.transform, setup.dataset.max_value)
    session = TrainingSession(net, setup.config.local, setup.config.seed, spec)
    counts = footprint(setup.method, broadcast, net.arranged(x), session)
    done = broadcast.round + 1
    return [
        metrics.FLOATS_MODEL.row(done, float(counts.model)),
        metrics.FLOATS_TRAINING.row(done, float(counts.training)),
        metrics.FLOATS_KEPT.row(done, float(counts.kept)),
    ]


def fairness(done: int, reports: Sequence[Report]) -> list[Row]:
    """Measure how unequal the accuracies of the last round's participants are. `done` counts the rounds."""
    rows = []
    for model in WORST_DECILE:
        scores = [report.scores.models[model].accuracy for report in reports if model in report.scores.models]
        if scores:
            rows.append(WORST_DECILE[model].row(done, worst_decile(scores), n=len(scores)))
            rows.append(SPREAD[model].row(done, spread(scores), n=len(scores)))
    return rows


def after_last(
    split: ParameterSplit, data: FederatedData, net: Network, whole: Broadcast | None
) -> list[Row]:
    """Measure the global model on the test set, if there is one.

    `spectrum` gives R1, R2 and R4 of docs/papers/fedmr.md §E3, table 7. `calibration` gives the expected
    calibration error.
    """
    if whole is None:
        return []
    state = joined(split, whole, None, net)
    rows = _spectrum(data, net, state, whole.round) if data.federation.asks("spectrum") else []
    if data.federation.asks("calibration"):
        rows += _calibration(data, net, state, whole.round)
    return rows


def _calibration(data: FederatedData, net: Network, state: State, done: int) -> list[Row]:
    logits, labels = [], []
    for x, y in _test_chunks(data, net):
        for scores, _, answers in net.chunks(state, x, y, EVAL_CHUNK):
            logits.append(scores.cpu())
            labels.append(answers.cpu())
    if not labels:
        return []
    y = torch.cat(labels)
    return [CALIBRATION.row(done, calibration_error(torch.cat(logits), y), n=len(y))]


def _spectrum(data: FederatedData, net: Network, state: State, done: int) -> list[Row]:
    chunks = list(_test_chunks(data, net))
    y = torch.cat([labels for _, labels in chunks])
    z = torch.cat([features_of(net, state, x, labels) for x, labels in chunks])
    order = torch.from_numpy(seeds.rng(data.seed, "spectrum").permutation(len(z)))
    readings = {
        metrics.SPECTRUM_BATCHES: by_batch(z, order),
        metrics.SPECTRUM_CLASSES: by_class(z, y, order),
        metrics.SPECTRUM_RAW: by_batch(z, order, standardised=False),
    }
    return [metric.row(done, value, n=count) for metric, (value, count) in readings.items()]


def _test_chunks(data: FederatedData, net: Network) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the prepared inputs and labels of the test set, chunk by chunk."""
    images, answers = data.test_set()
    y = torch.from_numpy(np.array(answers))
    for first in range(0, len(images), EVAL_CHUNK):
        part = slice(first, first + EVAL_CHUNK)
        x = prepare_inputs(images[part].copy(), data.transform, data.dataset.max_value)
        yield net.arranged(x), y[part]


# Metrics of the user's own: their rows, and their values of the global model.
#
# The clients' own models are measured where the clients train (runtime/worker.py).


EACH: tuple[Level, ...] = ("client", "mean")
REPORTED = Unit("number")
LEVELS: Mapping[str, tuple[Level, str]] = {"global": ("global", "none"), "local": ("mean", "clients")}
WHERE: Mapping[tuple[str, str], tuple[tuple[Level, ...], str]] = {
    ("global", "test"): (("global",), "the aggregated model on the test set"),
    ("global", "val"): (("global",), "the aggregated model on the validation parts of all clients"),
    ("personal", "local_test"): (EACH, "each participant's personalised model on its own test part"),
    ("personal", "val"): (EACH, "each participant's personalised model on its own validation part"),
}


def declared(metric: OwnMetric) -> dict[tuple[str, str], Metric]:
    """Return the rows that a metric has, by model and split, and let METRICS know them.

    Raises:
        UsageError: One of raffed's own metrics has this name.
    """
    unit = FRACTION if metric.unit == FRACTION_WORD else Unit(metric.unit)
    return {
        (model, split): METRICS.admit(
            Metric(
                metric.name,
                model,
                split,
                unit,
                levels,
                metric.better,
                "every evaluated round, with --metric",
                f"{metric.meaning}; {what}",
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
        pool, rows = setup.data.scored_rows[self.split]
        data = setup.dataset
        inputs, answers = (data.x_test, data.y_test) if pool == "test" else (data.x, data.y)
        state = joined(setup.method.split, self.whole, None, net)
        labels, outputs = torch.from_numpy(np.array(answers[rows])), []
        for first in range(0, len(rows), EVAL_CHUNK):
            part = slice(first, first + EVAL_CHUNK)
            x = prepare_inputs(inputs[rows[part]].copy(), setup.data.transform, data.max_value)
            x = net.arranged(x.to(net.device))
            outputs += [output.cpu() for output, _, _ in net.chunks(state, x, labels[part], EVAL_CHUNK)]
        return torch.cat(outputs), labels


class OwnMeasures:
    """Makes the rows of a run's own metrics.

    Args:
        data: The clients and their samples.
        method: Name of the run's method.

    Attributes:
        scored: The splits on which these metrics measure the global model.
    """

    def __init__(self, data: FederatedData, method: str) -> None:
        self._method = method
        self._metrics = {metric: declared(metric) for metric in data.own_metrics}
        self._names = {metric.name for metric in self._metrics}
        splits = ("test", "val") if self._metrics else ()
        self.scored = [split for split in splits if len(data.scored_rows[split][1])]
        self.reported: dict[tuple[str, str], Metric] = {}

    def rows(
        self, done: int, scores: Mapping[str, tuple[Tensor, Tensor]], reports: Sequence[Report]
    ) -> list[Row]:
        """Return the rows of an evaluated round.

        Args:
            done: Number of rounds done.
            scores: Split → what the global model says there, as `ModelScores` gives it. Empty if there is no
                such model or the round is not evaluated.
            reports: What the participants reported.
        """
        rows = [
            functions["global", split].row(done, metric.measure(given, labels), n=len(labels))
            for split, (given, labels) in scores.items()
            for metric, functions in self._metrics.items()
        ]
        for metric, functions in self._metrics.items():
            for split in ("local_test", "val"):
                rows += _of_clients(done, functions["personal", split], metric.name, split, reports)
        return rows

    def of_method(self, done: int, numbers: Mapping[str, float], reports: Sequence[Report]) -> list[Row]:
        """Return the rows of what the method's hooks report: the server's numbers, and the clients' means.

        Args:
            done: Number of rounds done.
            numbers: What the server reports.
            reports: What the participants reported.

        Raises:
            UsageError: Another metric has one of the names.
        """
        rows = [self._number("global", name).row(done, value) for name, value in numbers.items()]
        for name in dict.fromkeys(name for report in reports for name in report.numbers):
            values = [r.numbers[name] for r in reports if not math.isnan(r.numbers.get(name, math.nan))]
            mean = math.fsum(values) / len(values) if values else math.nan
            rows.append(self._number("local", name).row(done, mean, n=len(values)))
        return rows

    def _number(self, model: str, name: str) -> Metric:
        """Return the metric of a number that the method reports of its server or of its clients."""
        if (model, name) not in self.reported:
            method = self._method
            if name in self._names or METRICS.named(name):
                raise UsageError(
                    f"{method}: a hook reports {name!r}, which is the name of another metric; choose another"
                )
            level, n = LEVELS[model]
            when, meaning = "every round, if the method reports it", f"{name}, as {method} reports it"
            metric = Metric(name, model, "train", REPORTED, (level,), "neither", when, meaning, n)
            self.reported[model, name] = METRICS.admit(metric)
        return self.reported[model, name]

    def means(self, rows: Sequence[Row]) -> dict[str, float]:
        """Return "MODEL SPLIT METRIC" → value, of the rows of these metrics, and of what the method reports,
        that are of no single client.
        """
        names = self._names | {name for _, name in self.reported}
        kept = (row for row in rows if row.metric in names and row.client is None)
        return {f"{row.model} {row.split} {row.metric}": row.value for row in kept}


def _of_clients(done: int, metric: Metric, name: str, split: str, reports: Sequence[Report]) -> list[Row]:
    """Return a row of each participant that was measured, and the unweighted mean of the numbers."""
    measured = [(r.client, r.scores.own[split, name]) for r in reports if (split, name) in r.scores.own]
    rows = [metric.row(done, measure.value, client=client, n=measure.n) for client, measure in measured]
    known = [measure.value for _, measure in measured if not math.isnan(measure.value)]
    if measured:
        rows.append(metric.row(done, plain_mean(known), n=len(known)))
    return rows
