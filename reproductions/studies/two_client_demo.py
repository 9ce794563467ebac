"""Two clients with five classes each, examined closely: FedAvg and MAP (Li et al., TKDE 2024), Fig. 8.

The network is LeNet-2d without ReLU. There are 10 rounds of 5 epochs, with both clients in every round, and
MAP's restricted softmax is in mode `counts` (the authors' observer). At round 5 the first client's features
and all proxies are recorded for three models: the downloaded one, the one after personalization (FedAvg:
after training; MAP: its private model), and the aggregated one.

The class sets are {0-4} and {5-9}; the paper states only their sizes. Rate, batch and decay are MAP's usual
ones. Full scale is MNIST, proxy scale is Fashion-MNIST with 1,000 images of each class, and smoke scale is
digits. Weights start with PyTorch's initialisation, as in Fig. 5.
"""

from __future__ import annotations

from typing import NamedTuple

from raffed import Federation, Local, Method, State
from raffed.methods import build_method
from raffed.tables.items import Work

from .central import Pool, accuracy, features, load_pool, network
from .metrics import proxy_norm
from .record import Recorder
from .rounds import OpenFederation, parts

OWNED = (range(5), range(5, 10))
METHODS = {"FedAvg": ("fedavg", {}), "MAP": ("map", {"mode": "counts"})}
LOCAL_TEST, SHOWN_ROUND, SHOWN_IMAGES = 0.2, 5, 250


class TwoClientDemoSettings(NamedTuple):
    """Data set, images of each class (None: all), rounds, and epochs in each round."""

    dataset: str
    per_class: int | None
    rounds: int
    epochs: int


SETTINGS = {
    "smoke": TwoClientDemoSettings("digits", 12, 2, 1),
    "proxy": TwoClientDemoSettings("fashion-mnist", 1000, 10, 5),
    "full": TwoClientDemoSettings("mnist", None, 10, 5),
}


def run(work: Work) -> None:
    """Record values for each method, client and round, and points of both methods' three models."""
    chosen = SETTINGS[work.scale]
    regime = Local(lr=0.03, momentum=0.9, weight_decay=1e-5, batch_size=64, epochs=chosen.epochs, min_steps=5)
    pool = load_pool(work, chosen.dataset, "map", per_class=chosen.per_class, tests=0)
    last = min(SHOWN_ROUND, chosen.rounds)
    facts = {**chosen._asdict(), "model": "lenet_2d", "shown_round": last}
    with Recorder(work, facts, regime) as record:
        for number, (name, (key, args)) in enumerate(METHODS.items()):
            demo = Demo(
                record, work, pool, regime, Federation(chosen.rounds, 1.0), name, build_method(key, args)
            )
            for round in range(1, chosen.rounds + 1):
                work.tell(
                    f"Fig. 8, {name}, round {round}", (number + (round - 1) / chosen.rounds) / len(METHODS)
                )
                demo.step(round, shown=round == last)
    work.tell("Fig. 8", 1.0)


class Demo:
    """One method, trained on the two clients."""

    def __init__(
        self,
        record: Recorder,
        work: Work,
        pool: Pool,
        regime: Local,
        plan: Federation,
        name: str,
        method: Method,
    ) -> None:
        self.record, self.pool, self.name = record, pool, name
        self.parts = parts(pool.y, OWNED, work.seed, LOCAL_TEST)
        self.net = network(work, "lenet_2d", pool, {"relu": False}, torch_init=True)
        data = [pool.data(train) for train, _ in self.parts]
        self.federation = OpenFederation(method, self.net, data, regime, work.seed, plan, pool.transform)

    def step(self, round: int, shown: bool) -> None:
        """Execute a round and record what is seen of it. Rounds count from 1."""
        done = self.federation.step()
        for client, client_round in done.items():
            personal = client_round.personal_state(self.federation.method)
            models = {
                "downloaded": client_round.start,
                "trained": client_round.trained,
                "personalized": personal,
                "aggregated": self.federation.model(client),
            }
            for what, state in models.items():
                self._value(client, round, f"accuracy, {what}", self._accuracy(client, state))
            missing = [label for label in range(self.pool.classes) if label not in OWNED[client]]
            for what, classes in (("missing", missing), ("observed", list(OWNED[client]))):
                self._value(
                    client,
                    round,
                    f"norm of {what} proxies after training",
                    proxy_norm(client_round.trained.w["head.weight"], classes),
                )
            if shown and client == 0:
                for what in ("downloaded", "personalized", "aggregated"):
                    self._points(what, models[what])

    def _value(self, client: int, round: int, metric: str, value: float) -> None:
        self.record.value(self.name, f"client {client + 1}", round, metric, value)

    def _accuracy(self, client: int, state: State) -> float:
        index = self.parts[client][1]
        return accuracy(self.net, state, self.pool.x[index], self.pool.y[index], self.pool.classes)

    def _points(self, what: str, state: State) -> None:
        index, panel = self.parts[0][1][:SHOWN_IMAGES], f"{self.name}, {what}"
        z, w = features(self.net, state, self.pool.x[index])[1], state.w["head.weight"].cpu().numpy()
        self.record.points(panel, "feature", self.pool.y[index].tolist(), z.cpu().numpy())
        for kind, classes in (("proxy", OWNED[0]), ("missing proxy", OWNED[1])):
            self.record.points(panel, kind, classes, w[list(classes)])
