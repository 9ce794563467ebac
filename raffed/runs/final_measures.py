"""What `federation.measures` asks for. The driver measures it around the last round.

So the result has the same bits wherever the clients train.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.context import Spec
from raffed.core.measures import final
from raffed.core.measures.final import calibration_error, footprint, spread, worst_decile
from raffed.core.messages import Broadcast
from raffed.core.round import EVAL_CHUNK, joined
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.data.transforms import prepare_inputs
from raffed.results import metrics
from raffed.results.metrics import CALIBRATION, SPREAD, WORST_DECILE
from raffed.results.row import Row
from raffed.runtime.network_setup import features_of
from raffed.runtime.reports import Report
from raffed.runtime.setup import Setup


def before_last(setup: Setup, net: Network, spec: Spec, broadcast: Broadcast) -> list[Row]:
    """Measure the last round's broadcast.

    `memory` counts the numbers that a client holds (core/measures/client_memory.py) in a step on two test
    images.
    """
    if not setup.config.federation.asks("memory"):
        return []
    x = prepare_inputs(setup.test_set()[0][:2].copy(), setup.transform, setup.dataset.max_value)
    session = TrainingSession(net, setup.config.local, setup.config.seed, spec)
    found = footprint(setup.method, broadcast, net.arranged(x), session)
    done = broadcast.round + 1
    return [
        metrics.FLOATS_MODEL.row(done, float(found.model)),
        metrics.FLOATS_TRAINING.row(done, float(found.training)),
        metrics.FLOATS_KEPT.row(done, float(found.kept)),
    ]


def fairness(setup: Setup, done: int, reports: Sequence[Report]) -> list[Row]:
    """Measure how unequal the accuracies of the last round's participants are. `done` counts the rounds."""
    if not setup.config.federation.asks("fairness"):
        return []
    rows = []
    for model in WORST_DECILE:
        scores = [one.scores.models[model].accuracy for one in reports if model in one.scores.models]
        if scores:
            rows.append(WORST_DECILE[model].row(done, worst_decile(scores), n=len(scores)))
            rows.append(SPREAD[model].row(done, spread(scores), n=len(scores)))
    return rows


def after_last(setup: Setup, net: Network, whole: Broadcast | None) -> list[Row]:
    """Measure the global model on the test set, if there is one.

    `spectrum` gives R1, R2 and R4 of docs/papers/fedmr.md §E3, table 7. `calibration` gives the expected
    calibration error.
    """
    if whole is None:
        return []
    rows = _spectrum(setup, net, whole) if setup.config.federation.asks("spectrum") else []
    return rows + (_calibration(setup, net, whole) if setup.config.federation.asks("calibration") else [])


def _calibration(setup: Setup, net: Network, whole: Broadcast) -> list[Row]:
    state = joined(setup.method, whole, None, net)
    logits, labels = [], []
    for x, y in _test_chunks(setup, net):
        for scores, _, answers in net.chunks(state, x, y, EVAL_CHUNK):
            logits.append(scores.cpu())
            labels.append(answers.cpu())
    if not labels:
        return []
    y = torch.cat(labels)
    return [CALIBRATION.row(whole.round, calibration_error(torch.cat(logits), y), n=len(y))]


def _spectrum(setup: Setup, net: Network, whole: Broadcast) -> list[Row]:
    state = joined(setup.method, whole, None, net)
    chunks = list(_test_chunks(setup, net))
    y = torch.cat([labels for _, labels in chunks])
    z = torch.cat([features_of(net, state, x, labels) for x, labels in chunks])
    order = torch.from_numpy(seeds.rng(setup.config.seed, "spectrum").permutation(len(z)))
    readings = {
        metrics.SPECTRUM_BATCHES: final.by_batch(z, order),
        metrics.SPECTRUM_CLASSES: final.by_class(z, y, order),
        metrics.SPECTRUM_RAW: final.by_batch(z, order, standardised=False),
    }
    return [metric.row(whole.round, value, n=count) for metric, (value, count) in readings.items()]


def _test_chunks(setup: Setup, net: Network) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the prepared inputs and labels of the test set, chunk by chunk."""
    images, answers = setup.test_set()
    y = torch.from_numpy(np.array(answers))
    for first in range(0, len(images), EVAL_CHUNK):
        part = slice(first, first + EVAL_CHUNK)
        x = prepare_inputs(images[part].copy(), setup.transform, setup.dataset.max_value)
        yield net.arranged(x), y[part]
