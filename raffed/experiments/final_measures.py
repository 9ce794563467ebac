"""What `federation.measures` asks for. The driver measures it around the last round.

So the result has the same bits wherever the clients train.
"""

from __future__ import annotations

import numpy as np
import torch

from raffed.core import seeds
from raffed.core.context import Spec
from raffed.core.measures import feature_spectrum
from raffed.core.measures.client_memory import footprint
from raffed.core.messages import Broadcast
from raffed.core.round import EVAL_CHUNK, joined
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.data.transforms import prepare_inputs
from raffed.results import other_metrics as metrics
from raffed.results.row import Row
from raffed.runtime.setup import Setup
from raffed.runtime.worker import features_of


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


def after_last(setup: Setup, net: Network, whole: Broadcast | None) -> list[Row]:
    """Measure the global model on the test set, if there is one.

    `spectrum` gives R1, R2 and R4 of docs/papers/fedmr.md §E3, table 7.
    """
    if whole is None or not setup.config.federation.asks("spectrum"):
        return []
    images, answers = setup.test_set()
    state, y = joined(setup.method, whole, None, net), torch.from_numpy(np.array(answers))
    parts = []
    for first in range(0, len(images), EVAL_CHUNK):
        part = slice(first, first + EVAL_CHUNK)
        x = prepare_inputs(images[part].copy(), setup.transform, setup.dataset.max_value)
        parts.append(features_of(net, state, net.arranged(x), y[part]))
    z = torch.cat(parts)
    order = torch.from_numpy(seeds.rng(setup.config.seed, "spectrum").permutation(len(z)))
    readings = {
        metrics.SPECTRUM_BATCHES: feature_spectrum.by_batch(z, order),
        metrics.SPECTRUM_CLASSES: feature_spectrum.by_class(z, y, order),
        metrics.SPECTRUM_RAW: feature_spectrum.by_batch(z, order, standardised=False),
    }
    return [metric.row(whole.round, value, n=count) for metric, (value, count) in readings.items()]
