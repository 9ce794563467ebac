"""Training in one place, with the kernel's own network, batches and loop, for figures without a
federation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed import ClientData, Forward, Local, Params, Pass, State
from raffed.core import seeds
from raffed.core.losses import cross_entropy
from raffed.core.training.network import Network
from raffed.core.training.session import solver_for
from raffed.core.training.sgd import SgdPhase, batch_stream
from raffed.core.training.task import Augmentation, ClientTask, TrainingPhase, Views
from raffed.data.datasets import load_dataset
from raffed.data.preparation import Transform
from raffed.data.transforms import augment_by, augment_draws, prepare_images, transform_for
from raffed.models import build
from raffed.runtime.scoring import evaluate
from raffed.tables.items import Work

CHUNK = 500  # images in one forward pass without gradient
Watch = Callable[[int, Tensor, Tensor], None]
"""(epochs done, the head's weight [C, D], the sum of its gradients over the epoch's batches [C, D])."""


@dataclass(frozen=True)
class Pool:
    """Prepared images of a data set: x [n, C, H, W] and y [n], and those of its test set."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    transform: Transform

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    def data(self, index: Tensor) -> ClientData:
        """Return some of the training images as a client's data."""
        y = self.y[index]
        return ClientData(self.x[index], y, torch.bincount(y, minlength=self.classes))

    def of(self, classes: Sequence[int], test: bool = False) -> Tensor:
        """Return the ascending indices of the training images, or test images, of some classes."""
        y = self.y_test if test else self.y
        return torch.isin(y, torch.tensor(list(classes), device=y.device)).nonzero()[:, 0]


def load_pool(
    work: Work,
    dataset: str,
    style: str,
    per_class: int | None = None,
    tests: int | None = None,
    augmented: bool = False,
) -> Pool:
    """Load a data set in a paper's preparation, resized to 32x32.

    Args:
        work: The study, with its seed and data folder.
        dataset: A key of DATASETS.
        style: The style of preparation (raffed/data/transforms.py).
        per_class: Largest number of training images of each class, chosen by the seed; None for all.
        tests: The same for the test images.
        augmented: Whether the paper's random crops and flips are used, if it has some.
    """
    loaded = load_dataset(dataset, work.root)
    transform = replace(transform_for(dataset, style), size=32)
    if not augmented:
        transform = replace(transform, crop_padding=0, flip=False, rotation_degrees=0.0, flamby=None)
    rng = seeds.rng(work.seed, "split")
    parts = []
    for images, labels, most in ((loaded.x, loaded.y, per_class), (loaded.x_test, loaded.y_test, tests)):
        kept = _at_most(labels, loaded.num_classes, most, rng)
        parts += [prepare_images(images[kept], transform, loaded.max_value), torch.from_numpy(labels[kept])]
    x, y, x_test, y_test = (part.to(work.device) for part in parts)
    return Pool(x, y, x_test, y_test, loaded.num_classes, transform)


def _at_most(
    labels: NDArray[np.int64], classes: int, most: int | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    if most is None:
        return np.arange(len(labels))
    drawn = [rng.permutation(np.flatnonzero(labels == label))[:most] for label in range(classes)]
    return np.sort(np.concatenate(drawn))


def network(
    work: Work,
    model: str,
    pool: Pool,
    args: Mapping[str, bool | list[int]] | None = None,
    *,
    torch_init: bool = False,
) -> Network:
    """Return the network with the initial weights of a federation with this seed.

    With `torch_init`, it has PyTorch's own initialisation instead. `args` are the network's arguments.
    """
    seed = seeds.seed(work.seed, "weights")
    module = build(model, pool.shape, pool.classes, seed, **(args or {}))
    if torch_init:
        with seeds.forked(seed):
            for layer in module.modules():
                if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
                    layer.reset_parameters()
    return Network(module, work.device)


class _Watcher:
    """Watches the head from inside the loop: its weights after each epoch, its gradients at every step."""

    def __init__(self, per_epoch: int, watch: Watch | None, like: Tensor) -> None:
        self.per_epoch, self.watch = per_epoch, watch
        self.total, self.epoch, self.steps = torch.zeros_like(like), 0, 0

    def objective(self, f: Forward, views: Views) -> Tensor:
        if self.steps and self.steps % self.per_epoch == 0:
            self.end(f.w)
        self.steps += 1
        return cross_entropy(f.logits, f.y)

    def gradient(self, g: Params, w: Params, views: Views) -> Params:
        self.total += g["head.weight"]
        return g

    def end(self, w: Params) -> None:
        self.epoch += 1
        if self.watch is not None:
            self.watch(self.epoch, w["head.weight"].detach().clone(), self.total.clone())
        self.total.zero_()


def train(
    net: Network, data: ClientData, local: Local, seed: int, transform: Transform, watch: Watch | None = None
) -> State:
    """Train the initial network with cross-entropy for `local.epochs` whole epochs, and return its state.

    This is one phase of training, so the momentum continues over epochs.
    """
    data = replace(data, x=net.arranged(data.x))
    per_epoch = local.batches(data.n)
    batches = batch_stream(data.n, int(local.epochs) * per_epoch, local, seeds.generator(seed, "batches"))
    watcher = _Watcher(per_epoch, watch, net.initial.w["head.weight"])
    solver = solver_for(local, Pass(), local.lr)
    task = ClientTask(watcher.objective, solver, correct=watcher.gradient)
    stream = seeds.generator(seed, "augment") if transform.augments else None
    phase = TrainingPhase(net.initial, batches, data, {}, augment=stream)
    augmentation = Augmentation(
        lambda batch, generator: augment_draws(batch, transform, generator),
        lambda x, drawn: augment_by(x, transform, drawn),
    )
    done = SgdPhase(net, task, phase, augmentation).run()
    watcher.end(done.state.w)
    return done.state


def features(net: Network, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (logits [n, C], z [n, D]) in evaluation mode."""
    parts = [net.apply(state, net.arranged(part)) for part in torch.split(x, CHUNK)]
    logits, z = (torch.cat(column) for column in zip(*parts, strict=True))
    return logits, z


def accuracy(net: Network, state: State, x: Tensor, y: Tensor, classes: int) -> float:
    """Return the fraction of images whose class has the highest logit of all C."""
    return evaluate(net, state, net.arranged(x), y, classes, CHUNK).accuracy
