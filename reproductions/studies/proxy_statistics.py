"""Norms, gradients and distances of the proxies, epoch by epoch: MAP (Li et al., TKDE 2024), Fig. 6.

Classes 0 to 7 are observed, and 8 and 9 are missing. Training is in one place with SGD, momentum 0.9, rate
0.03, 50 epochs and batch 64. Full scale is VGG11-BN on CIFAR-10. Proxy scale is LeNet-5 with 1,000 images of
each class and 20 epochs. Smoke scale is digits, resized. The published formulas of the distances are lost, so
both Euclidean distances and log(1 − cos) are recorded. At full scale images are cropped and flipped as in the
paper's other runs on CIFAR-10, because the paper says nothing about this one. The smaller scales have no
augmentation.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from raffed import Local
from raffed.tables.items import Work

from .central import accuracy, load_pool, network, train
from .metrics import mean_distance, mean_log_angle, proxy_norm
from .record import Recorder

OBSERVED, MISSING = range(8), range(8, 10)
PANEL = "proxies"


class ProxyStatisticsSettings(NamedTuple):
    """Data set, network, images of each class (None: all), epochs, and whether images are augmented."""

    dataset: str
    model: str
    per_class: int | None
    epochs: int
    augmented: bool = False


SETTINGS = {
    "smoke": ProxyStatisticsSettings("digits", "lenet", 20, 2),
    "proxy": ProxyStatisticsSettings("cifar10", "lenet", 1000, 20),
    "full": ProxyStatisticsSettings("cifar10", "vgg11_bn", None, 50, True),
}


def run(work: Work) -> None:
    """Record the values of one panel against the epoch. Epoch 0 is the initial network."""
    chosen = SETTINGS[work.scale]
    regime = Local(lr=0.03, momentum=0.9, weight_decay=0.0, batch_size=64, epochs=chosen.epochs)
    pool = load_pool(work, chosen.dataset, "map", per_class=chosen.per_class, augmented=chosen.augmented)
    net = network(work, chosen.model, pool)
    with Recorder(work, chosen._asdict(), regime) as record:

        def watch(epoch: int, w: Tensor, gradient: Tensor) -> None:
            work.tell(f"Fig. 6, epoch {epoch}", (epoch - 1) / chosen.epochs)
            record_proxies(record, epoch, w)
            for series, classes in (("observed", OBSERVED), ("missing", MISSING)):
                record.value(PANEL, series, epoch, "accumulated gradient norm", proxy_norm(gradient, classes))

        record_proxies(record, 0, net.initial.w["head.weight"])
        state = train(net, pool.data(pool.of(OBSERVED)), regime, work.seed, pool.transform, watch)
        index = pool.of(OBSERVED, test=True)
        share = accuracy(net, state, pool.x_test[index], pool.y_test[index], pool.classes)
        record.value(PANEL, "observed", chosen.epochs, "accuracy", share)
    work.tell("Fig. 6", 1.0)


def record_proxies(record: Recorder, epoch: int, w: Tensor) -> None:
    """Record the norms of both groups, and the distances within and between them."""
    for series, classes in (("observed", OBSERVED), ("missing", MISSING)):
        record.value(PANEL, series, epoch, "proxy norm", proxy_norm(w, classes))
    for series, a, b in (("O-O", OBSERVED, None), ("O-M", OBSERVED, MISSING), ("M-M", MISSING, None)):
        record.value(PANEL, series, epoch, "distance", mean_distance(w, a, b))
        record.value(PANEL, series, epoch, "log(1 − cos)", mean_log_angle(w, a, b))
