"""The shape of PFLlib's table of minutes an iteration: 20 clients, 64 x 64 images of 200 classes, ResNet-18.

PFLlib's data are Tiny-ImageNet, of which a client has about 5,000 images. Here a client has `IMAGES` random
ones, because the time of a step does not depend on what an image shows, and the ratio of two methods hardly
depends on the number of steps.
"""

from __future__ import annotations

import numpy as np

from benchmarks.workloads import Workload
from raffed import Data, Dataset, Federation, Local, Model, RunConfig, Runtime

CLIENTS, IMAGES, CLASSES, BATCH = 20, 120, 200, 10


def images() -> Dataset:
    """Return random images, the same ones every time."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (CLIENTS * IMAGES, 3, 64, 64), dtype=np.uint8)
    y = np.arange(CLIENTS * IMAGES) % CLASSES
    return Dataset(x, y, x[:CLASSES], y[:CLASSES], name="pfllib-shape")


def shape(gpu_fraction: float) -> Workload:
    """Return the workload, on a GPU if the fraction of one is not 0."""
    config = RunConfig(
        data=Data("benchmarks.pfllib_shape:images", f"iid:{CLIENTS}", transform="plain", local_test=0.0),
        model=Model("torchvision:resnet18"),
        local=Local(lr=0.005, batch_size=BATCH, epochs=1),
        federation=Federation(rounds=10_000, eval_every=10_000),
        runtime=Runtime(execution="serial", checkpoint_every=10_000, gpu_fraction=gpu_fraction),
    )
    text = (
        f"{CLIENTS} clients of {IMAGES} random images of 3 x 64 x 64 and {CLASSES} classes, 1 epoch of batch "
        f"{BATCH}, torchvision's ResNet-18 of 11,279,112 weights, plain SGD"
    )
    return Workload("PFLlib's shape", text, config, 1, 10)
