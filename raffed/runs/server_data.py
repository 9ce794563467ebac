"""Data that a server's rule asks for (ServerRule.required_data), and scores without the images it
has seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.core import seeds
from raffed.core.messages import Broadcast
from raffed.core.round import joined
from raffed.core.training.network import Network
from raffed.data.server_holdout import draw_server_holdout
from raffed.data.transforms import prepare_inputs
from raffed.results.metrics import CLEAN_ACCURACY
from raffed.results.row import Row
from raffed.runs.server_device import ServerDevice
from raffed.runtime.reports import ScoreCounts
from raffed.runtime.scoring import ModelScorer
from raffed.runtime.setup import Setup


def public_images(setup: Setup, count: int) -> Tensor | None:
    """Return `count` images of the global test set, prepared as for testing; None for 0.

    They are drawn once in a run. Their labels are not used.
    """
    if not count:
        return None
    return prepare_inputs(
        setup.test_set()[0][_public(setup, count)], setup.transform, setup.dataset.max_value
    )


def _public(setup: Setup, count: int) -> NDArray[np.int64]:
    chosen: NDArray[np.int64] = np.sort(
        seeds.rng(setup.config.seed, "public").permutation(len(setup.test_set()[1]))[:count]
    )
    return chosen


def labelled_images(setup: Setup, per_class: int) -> tuple[Tensor, Tensor] | None:
    """Return (images, labels) of every class that no client has, prepared as for testing; None for 0.

    See data/server_holdout.py.
    """
    if not per_class:
        return None
    data = setup.dataset
    chosen = draw_server_holdout(data.y, data.num_classes, per_class, setup.config.seed)
    images = prepare_inputs(data.x[chosen], setup.transform, data.max_value)
    return images, torch.from_numpy(data.y[chosen])


@dataclass(frozen=True)
class ModelScoring:
    """The scoring of a global model on prepared images x [n, ...] with labels y [n]."""

    whole: Broadcast
    x: Tensor
    y: Tensor

    def __call__(self, net: Network, setup: Setup) -> ScoreCounts:
        scorer = ModelScorer(setup.method, net, setup.dataset.num_classes)
        state = joined(setup.method, self.whole, None, net)
        return scorer.of(state, net.arranged(self.x.to(net.device)), self.y.to(net.device))


class CleanScore:
    """The score of the global model on the test images that its server has not seen.

    It is the score on all test images minus that on the public ones.
    """

    def __init__(self, setup: Setup, device: ServerDevice, images: Tensor) -> None:
        labels = setup.test_set()[1][_public(setup, len(images))]
        self._seen = images, torch.from_numpy(np.array(labels))
        self._device = device

    def rows(self, number: int, whole: Broadcast, test: ScoreCounts) -> list[Row]:
        """Return the row `accuracy_clean`; none if the server has seen every test image."""
        clean = test - self._device.do(ModelScoring(whole, *self._seen))
        return [CLEAN_ACCURACY.row(number, clean.accuracy, n=clean.n)] if clean.n else []
