"""Networks for n targeted classes compared with one for all classes: MAP (Li et al., TKDE 2024), Fig. 7.

M1 is trained on the first n classes and has n outputs. M2 is trained on all classes. Both are tested on the
test images of the n classes. M2 predicts among all classes. In a variant it predicts among the n only, which
separates the size of the label space from the features. Settings: SGD, momentum 0.9, rate 0.03, 50 epochs,
batch 64.

Full scale is VGG16-BN on CIFAR-100 with n = 10, 20, …, 80, cropped and flipped as in the paper's other runs
on it. Proxy scale is LeNet-5 on CIFAR-10 with 1,000 images of each class, n = 2, 4, 6, 8 and 15 epochs. Smoke
scale is digits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from raffed import Local
from raffed.tables.items import Work

from .central import Pool, features, load_pool, network, train
from .record import Recorder

PANEL = "targeted classes"


class TargetedClassesSettings(NamedTuple):
    """Data set, network, images of each class (None: all), epochs, the values of n, and whether to
    augment.
    """

    dataset: str
    model: str
    per_class: int | None
    epochs: int
    targeted: tuple[int, ...]
    augmented: bool = False


SETTINGS = {
    "smoke": TargetedClassesSettings("digits", "lenet", 20, 2, (2, 5)),
    "proxy": TargetedClassesSettings("cifar10", "lenet", 1000, 15, (2, 4, 6, 8)),
    "full": TargetedClassesSettings("cifar100", "vgg16_bn", None, 50, tuple(range(10, 81, 10)), True),
}


def run(work: Work) -> None:
    """Record the accuracies of M1, M2 and M2 among n, against n."""
    chosen = SETTINGS[work.scale]
    regime = Local(lr=0.03, momentum=0.9, weight_decay=0.0, batch_size=64, epochs=chosen.epochs)
    pool = load_pool(work, chosen.dataset, "map", per_class=chosen.per_class, augmented=chosen.augmented)
    whole, spent = sum(chosen.targeted) + pool.classes, pool.classes
    with Recorder(work, chosen._asdict(), regime) as record:
        work.tell(f"Fig. 7, all {pool.classes} classes", 0.0)
        all_classes = logits(work, pool, chosen.model, regime, pool.classes)
        for n in chosen.targeted:
            work.tell(f"Fig. 7, {n} classes", spent / whole)
            spent += n
            index = pool.of(range(n), test=True)
            y = pool.y_test[index]
            record.value(PANEL, "M1", n, "accuracy", share(logits(work, pool, chosen.model, regime, n), y))
            record.value(PANEL, "M2", n, "accuracy", share(all_classes[index], y))
            record.value(PANEL, "M2 among n", n, "accuracy", share(all_classes[index, :n], y))
    work.tell("Fig. 7", 1.0)


def logits(work: Work, pool: Pool, model: str, regime: Local, n: int) -> Tensor:
    """Train on the first n classes and return the logits [·, n] of their test images, in the test
    set's order.
    """
    only = replace(pool, classes=n)
    net = network(work, model, only)
    state = train(net, only.data(pool.of(range(n))), regime, work.seed, pool.transform)
    return features(net, state, pool.x_test[pool.of(range(n), test=True)])[0]


def share(scores: Tensor, y: Tensor) -> float:
    """Return how often the highest of the scores [m, n] is that of the label, as a fraction."""
    return float((scores.argmax(1) == y).double().mean())
