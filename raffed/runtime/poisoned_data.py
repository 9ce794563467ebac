"""What attackers train on, and the test images by which a backdoor is measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raffed.config.faults import ON_DATA, PATCH
from raffed.core import seeds
from raffed.data.files import InputArray
from raffed.federation.attacks import attackers
from raffed.runtime.setup import Setup

Samples = tuple[InputArray, NDArray[np.int64]]


class PoisonedData:
    """Changes the raw samples of a run's attackers, if its attack is one on data."""

    def __init__(self, setup: Setup) -> None:
        self._plan, self._seed = setup.config.faults, setup.config.seed
        self._classes, self._white = setup.dataset.num_classes, setup.dataset.max_value
        on_data = self._plan.attack in ON_DATA
        clients = setup.partition.num_clients
        self._who = attackers(self._plan, self._seed, clients) if on_data else frozenset[int]()

    def training(self, client: int, inputs: InputArray, labels: NDArray[np.int64]) -> Samples:
        """Return a client's training samples as it uses them.

        Args:
            client: Number of the client.
            inputs: Its raw inputs [n, ...], which may be changed in place.
            labels: Its labels [n].
        """
        if client not in self._who:
            return inputs, labels
        if self._plan.attack == "label_flip":
            return inputs, self._classes - 1 - labels
        order = seeds.rng(self._seed, "attackers", 0, client, 1).permutation(len(labels))
        chosen = order[: max(1, round(self._plan.backdoor_share * len(labels)))]
        inputs[chosen] = self._patched(inputs[chosen])
        labels = labels.copy()
        labels[chosen] = self._plan.backdoor_target
        return inputs, labels

    def test(self, inputs: InputArray, labels: NDArray[np.int64]) -> Samples:
        """Return test images with the patch, and the backdoor's target as their labels."""
        return self._patched(inputs), np.full_like(labels, self._plan.backdoor_target)

    def _patched(self, images: InputArray) -> InputArray:
        """Return images [n, C, H, W] whose upper left corner is white."""
        made = images.copy()
        made[..., :PATCH, :PATCH] = self._white if made.dtype == np.uint8 else 1.0
        return made


__all__ = ["PoisonedData"]
