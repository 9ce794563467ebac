"""Two-dimensional features and the proxies of missing classes: MAP (Li et al., TKDE 2024), Fig. 5.

LeNet-2d is trained in one place on the first 8, 5 or 2 of ten classes, with and without a ReLU on the
feature. Settings: SGD, momentum 0.9, rate 0.01, 50 epochs, batch 64 (docs/papers/map.md §E6, our choice).
Full scale is MNIST. Proxy scale is Fashion-MNIST with 1,000 images of each class and 15 epochs. Smoke scale
is digits, resized. The features are those of test images of the observed classes. One thing differs: weights
start with PyTorch's initialisation. With the N(0, 0.01²) of the paper's other networks, all features behind
the ReLU became 0 and stayed there.
"""

from __future__ import annotations

from typing import NamedTuple

from raffed import Local
from raffed.tables.items import Work

from .central import Pool, accuracy, features, load_pool, network, train
from .metrics import mean_cosine, proxy_norm, spreads
from .record import Recorder

OBSERVED = (8, 5, 2)


class Features2DSettings(NamedTuple):
    """Data set, images of each class (None: all), epochs, and test images of each class."""

    dataset: str
    per_class: int | None
    epochs: int
    tests: int | None


SETTINGS = {
    "smoke": Features2DSettings("digits", 20, 1, 10),
    "proxy": Features2DSettings("fashion-mnist", 1000, 15, 200),
    "full": Features2DSettings("mnist", None, 50, 200),
}


def local(epochs: float, lr: float = 0.01) -> Local:
    """Return the settings of the figure's SGD."""
    return Local(lr=lr, momentum=0.9, weight_decay=0.0, batch_size=64, epochs=epochs)


def run(work: Work) -> None:
    """Record six panels: features and proxies as points; proxy norm, cosine, spread and accuracy as
    values.
    """
    chosen = SETTINGS[work.scale]
    regime = local(chosen.epochs)
    pool = load_pool(work, chosen.dataset, "map", per_class=chosen.per_class, tests=chosen.tests)
    panels = [(relu, count) for relu in (True, False) for count in OBSERVED]
    with Recorder(work, {**chosen._asdict(), "model": "lenet_2d"}, regime) as record:
        for number, (relu, count) in enumerate(panels):
            name = f"{count} classes, {'ReLU' if relu else 'no ReLU'}"
            work.tell(f"Fig. 5, {name}", number / len(panels))
            panel(record, work, pool, regime, name, relu, count)
    work.tell("Fig. 5", 1.0)


def panel(record: Recorder, work: Work, pool: Pool, regime: Local, name: str, relu: bool, count: int) -> None:
    """Train one network and record its panel."""
    observed, missing = range(count), range(count, pool.classes)
    net = network(work, "lenet_2d", pool, {"relu": relu}, torch_init=True)
    state = train(net, pool.data(pool.of(observed)), regime, work.seed, pool.transform)
    index = pool.of(observed, test=True)
    y = pool.y_test[index]
    z, w = features(net, state, pool.x_test[index])[1], state.w["head.weight"]
    record.points(name, "feature", y.tolist(), z.cpu().numpy())
    record.points(name, "proxy", observed, w[:count].cpu().numpy())
    record.points(name, "missing proxy", missing, w[count:].cpu().numpy())
    for series, classes in (("observed", observed), ("missing", missing)):
        record.value(name, series, 0, "proxy norm", proxy_norm(w, classes))
        record.value(name, series, 0, "cosine to the mean feature", mean_cosine(w, classes, z.mean(0)))
    intra, inter = spreads(z, y)
    record.value(name, "observed", 0, "within-class spread", intra)
    record.value(name, "observed", 0, "between classes", inter)
    record.value(name, "observed", 0, "accuracy", accuracy(net, state, pool.x_test[index], y, pool.classes))
