"""How far clients that train alone drift from FedAvg: MpFedcon (2022), Fig. 3.

The same clients, batches and rounds are used with SOLO and with FedAvg, for several numbers of local epochs
E. Two things are recorded in every round: the mean accuracy of the participants on their own test images, and
the mean over them of ‖w_SOLO − w_FedAvg‖² / P. w_SOLO is the client's own model after the round, and w_FedAvg
the aggregated one. The distance to the client's own trained FedAvg model is recorded too, because the paper
does not say which is meant.

Full scale is CIFAR-10, (100, 5), a tenth of the clients, 100 rounds and the paper's network, with E = 1, 5,
10, 20 as in its Fig. 7, and crops and flips as in FedRep's code. Proxy scale has 10 clients, all in every
round, SimpleCNN, 200 images of each class, and E = 1, 5, 10.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from raffed import Federation, Local, State
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.methods import build_method
from raffed.tables.items import Work

from .central import Pool, accuracy, load_pool, network
from .metrics import mean, mean_square
from .record import Recorder
from .rounds import OpenFederation


class SoloDriftSettings(NamedTuple):
    """Data set, network, split, participation, rounds, the values of E, and numbers of images.

    The latter are training and test images of each class (None: all).
    """

    dataset: str
    model: str
    split: str
    participation: float
    rounds: int
    epochs: tuple[int, ...]
    per_class: int | None = None
    tests: int | None = None
    augmented: bool = False


SETTINGS = {
    "smoke": SoloDriftSettings("digits", "simplecnn", "equal:4:5", 1.0, 2, (1, 2), 12, 8),
    "proxy": SoloDriftSettings("cifar10", "simplecnn", "equal:10:5", 1.0, 10, (1, 5), 200, 100),
    "full": SoloDriftSettings("cifar10", "cnn5", "equal:100:5", 0.1, 100, (1, 5, 10, 20), None, None, True),
}


def divided(pool: Pool, split: str, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return every client's (training, test) indices. Tests come from the benchmark's own test set."""
    y, y_test = pool.y.cpu().numpy(), pool.y_test.cpu().numpy()
    drawn = make_partition(parse_split(split), y, pool.classes, None, seed, None, y_test)
    return [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in zip(drawn.train, drawn.test, strict=True)]


def local(epochs: float) -> Local:
    """Return the settings of the paper's SGD (docs/papers/mpfedcon.md §4)."""
    return Local(lr=0.01, momentum=0.5, weight_decay=1e-4, batch_size=10, epochs=epochs)


def run(work: Work) -> None:
    """Record one panel for each value of E."""
    chosen = SETTINGS[work.scale]
    style = "map" if chosen.augmented else "plain"
    pool = load_pool(work, chosen.dataset, style, chosen.per_class, chosen.tests, chosen.augmented)
    whole, spent = sum(chosen.epochs) * chosen.rounds, 0
    with Recorder(work, chosen._asdict(), local(1)) as record:
        for epochs in chosen.epochs:
            pair = ClientPair(record, work, pool, chosen, epochs)
            for round in range(1, chosen.rounds + 1):
                work.tell(f"Fig. 3, E = {epochs}, round {round}", spent / whole)
                pair.step(round)
                spent += epochs
    work.tell("Fig. 3", 1.0)


class ClientPair:
    """SOLO and FedAvg, side by side."""

    def __init__(
        self, record: Recorder, work: Work, pool: Pool, chosen: SoloDriftSettings, epochs: int
    ) -> None:
        self.record, self.pool, self.panel = record, pool, f"E = {epochs}"
        self.parts = divided(pool, chosen.split, work.seed)
        data = [pool.data(train) for train, _ in self.parts]
        plan = Federation(chosen.rounds, chosen.participation)
        self.net = network(work, chosen.model, pool)
        common = (self.net, data, local(epochs), work.seed, plan, pool.transform)
        self.alone = OpenFederation(build_method("solo", {}), *common)
        self.together = OpenFederation(build_method("fedavg", {}), *common)

    def step(self, round: int) -> None:
        """Execute a round of both, with the same participants."""
        alone, together = self.alone.step(), self.together.step()
        aggregated = self.together.model(0)
        models = {
            "SOLO": {c: done.trained for c, done in alone.items()},
            "FedAvg": dict.fromkeys(together, aggregated),
            "FedAvg, trained locally": {c: done.trained for c, done in together.items()},
        }
        for name, states in models.items():
            scores = [self._accuracy(client, state) for client, state in states.items()]
            self.record.value(self.panel, name, round, "accuracy", mean(scores))
        for series, name in (("aggregated", "FedAvg"), ("the party's own", "FedAvg, trained locally")):
            gaps = [mean_square(done.trained.w, models[name][client].w) for client, done in alone.items()]
            self.record.value(self.panel, series, round, "mean squared distance", mean(gaps))

    def _accuracy(self, client: int, state: State) -> float:
        index = self.parts[client][1]
        return accuracy(self.net, state, self.pool.x_test[index], self.pool.y_test[index], self.pool.classes)
