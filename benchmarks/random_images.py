"""Random images in the shape of a published data set, for a machine that does not have the data.

The time of a step does not depend on what an image shows. Accuracies of such runs mean nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.workloads import Workload
from raffed import Dataset
from raffed.data.catalogue import DATASETS
from raffed.data.preparation import TRANSFORMS


def cifar10() -> Dataset:
    """Return random images in the shape of CIFAR-10."""
    return _random("cifar10")


def fashion_mnist() -> Dataset:
    """Return random images in the shape of Fashion-MNIST."""
    return _random("fashion-mnist")


def _random(name: str) -> Dataset:
    info, draw = DATASETS[name], np.random.default_rng(0)
    x, x_test = (
        draw.integers(0, 256, (count, *info.shape), dtype=np.uint8)
        for count in (info.num_train, info.num_test)
    )
    y, y_test = (np.arange(count) % info.num_classes for count in (info.num_train, info.num_test))
    return Dataset(x, y, x_test, y_test, name=f"random-{name}", transforms=TRANSFORMS[name])


def with_random_images(workload: Workload) -> Workload:
    """Return a workload of CIFAR-10 or Fashion-MNIST with random images of the same number and shape."""
    config = workload.config
    factory = config.data.dataset.replace("-", "_")
    data = replace(config.data, dataset=f"{__name__}:{factory}")
    return replace(workload, text=f"{workload.text}; random images", config=replace(config, data=data))
