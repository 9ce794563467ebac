"""Features of four ways to train, embedded in the plane: MpFedcon (2022), Fig. 4.

The setting is CIFAR-10 with 10 clients of 5 classes each, all in every round; the paper does not state the
participation for this figure. The ways are one network trained on all data, SOLO, FedAvg and MpFedcon. The
representations z of every client's test images come from the central network, from the client's own one, from
the aggregated one, and from the client's personal one.

For the picture, z is embedded by t-SNE (scikit-learn, perplexity 30, PCA start). We add a number computed
from z itself: the mean distance to the class mean, divided by the mean distance between class means. SOLO and
the central network train for as many epochs as FedAvg. Full scale is the paper's network with 100 rounds.
Proxy scale has 16 channels, 10 rounds and 200 images of each class. Smoke scale is digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed import Federation, Local, State
from raffed.core import seeds
from raffed.core.training.network import Network
from raffed.methods import build_method
from raffed.tables.items import Work

from .central import Pool, features, load_pool, network, train
from .metrics import spreads
from .record import Recorder
from .rounds import OpenFederation
from .solo_drift import divided, local

METHODS = {"SOLO": "solo", "FedAvg": "fedavg", "MpFedcon": "mpfedcon"}


class FeaturesTSNESettings(NamedTuple):
    """Data set, keywords of cnn5, split, rounds, and numbers of images.

    The latter are training and test images of each class (None: all), and embedded test images of each
    client.
    """

    dataset: str
    network: Mapping[str, list[int]]
    split: str
    rounds: int
    per_class: int | None
    tests: int | None
    shown: int
    augmented: bool = False


SETTINGS = {
    "smoke": FeaturesTSNESettings("digits", {"channels": [4, 4]}, "equal:4:5", 1, 12, 20, 25),
    "proxy": FeaturesTSNESettings("cifar10", {"channels": [16, 16]}, "equal:10:5", 10, 200, 200, 60),
    "full": FeaturesTSNESettings("cifar10", {}, "equal:10:5", 100, None, None, 100, True),
}


def run(work: Work) -> None:
    """Record the points of one panel for each way to train, and the two distances of z."""
    chosen = SETTINGS[work.scale]
    style = "map" if chosen.augmented else "plain"
    pool = load_pool(work, chosen.dataset, style, chosen.per_class, chosen.tests, chosen.augmented)
    parts = divided(pool, chosen.split, work.seed)
    net = network(work, "cnn5", pool, chosen.network)
    shares = np.linspace(0, 1, len(METHODS) + 2)
    with Recorder(work, {**chosen._asdict(), "perplexity": 30}, local(1)) as record:
        work.tell("Fig. 4, central", 0.0)
        whole = train(
            net,
            pool.data(torch.cat([index for index, _ in parts])),
            local(chosen.rounds),
            work.seed,
            pool.transform,
        )
        look(record, work, pool, net, "Central", dict.fromkeys(range(len(parts)), whole), parts, chosen.shown)
        for (name, key), share in zip(METHODS.items(), shares[1:], strict=False):
            work.tell(f"Fig. 4, {name}", float(share))
            models = trained(work, pool, net, key, parts, local(1), chosen.rounds)
            look(record, work, pool, net, name, models, parts, chosen.shown)
    work.tell("Fig. 4", 1.0)


def trained(
    work: Work,
    pool: Pool,
    net: Network,
    key: str,
    parts: list[tuple[Tensor, Tensor]],
    regime: Local,
    rounds: int,
) -> dict[int, State]:
    """Return client → the model for its images: the aggregated one, completed by the layers that the client
    keeps.
    """
    plan = Federation(rounds, 1.0)
    federation = OpenFederation(
        build_method(key, {}),
        net,
        [pool.data(train) for train, _ in parts],
        regime,
        work.seed,
        plan,
        pool.transform,
    )
    for _ in range(rounds):
        federation.step()
    return {party: federation.model(party) for party in range(len(parts))}


def look(
    record: Recorder,
    work: Work,
    pool: Pool,
    net: Network,
    name: str,
    models: dict[int, State],
    parts: list[tuple[Tensor, Tensor]],
    shown: int,
) -> None:
    """Record the representations of every client's test images by its model: embedded, distances and
    accuracy.
    """
    representations, labels, hits = [], [], []
    for party, (_, test) in enumerate(parts):
        index = test[torch.linspace(0, len(test) - 1, min(shown, len(test))).long()]
        logits, z = features(net, models[party], pool.x_test[index])
        representations.append(z)
        labels.append(pool.y_test[index])
        hits.append((logits.argmax(1) == labels[-1]).double().mean())
    z, y = torch.cat(representations), torch.cat(labels)
    intra, inter = spreads(z, y)
    for metric, value in (
        ("intra-class distance", intra),
        ("inter-class distance", inter),
        ("intra / inter", intra / inter),
        ("accuracy", float(torch.stack(hits).mean())),
    ):
        record.value(name, "z", 0, metric, value)
    record.points(name, "feature", y.tolist(), embedded(z.cpu().numpy(), work.seed, work.threads))


def embedded(z: NDArray[np.float32], seed: int, threads: int) -> NDArray[np.float32]:
    """Return the t-SNE embedding [n, 2] of z [n, D]. The same seed and threads give the same bits."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    state = seeds.seed(seed, "server") % 2**32
    with threadpool_limits(threads):
        embedding = TSNE(
            perplexity=min(30.0, (len(z) - 1) / 3), init="pca", random_state=state, n_jobs=threads
        ).fit_transform(z)
    return np.asarray(embedding, np.float32)
