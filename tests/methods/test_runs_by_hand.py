"""Whole runs against plain implementations of the papers' boxes, written here in float64 without raffed.

The network of tests.tiny, clients with missing classes and unequal sizes, mini-batches in the run's order,
and rounds of some clients, who come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.messages import Upload
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.training.session import one_by_one
from raffed.core.training.task import Trained
from raffed.methods.fedgamma import fedgamma
from raffed.methods.fedic import Calibration, fedic
from raffed.methods.fedlesam import fedlesam
from raffed.methods.fedsam import fedsam
from raffed.methods.flda import drawn_gate, flda, fresh
from tests.tiny import (
    CLASSES,
    PLAIN,
    SIZES,
    Tiny,
    activity,
    client_data,
    companion,
    network,
    of_kind,
    tiny_loss,
)
from tests.tiny import slopes as gradient

Weights = dict[str, Tensor]
ROUNDS = ((0, 2, 3), (1, 2), (0, 1), (0, 1, 2, 3), (1, 3))
LOCAL = replace(PLAIN, epochs=2, batch_size=4)
RATE = 0.1


class Recorded(Tiny):
    """A federation that remembers each client's batches of the last round."""

    batches: dict[int, Sequence[Tensor]]

    def arrange(self) -> None:
        super().arrange()
        self.batches = {}

        def execute(net, task, phases, augmentation) -> list[Trained]:  # type: ignore[no-untyped-def]
            for one in phases:
                self.batches[SIZES.index(one.data.n)] = one.batches
            return one_by_one(net, task, phases, augmentation)

        self.session = replace(self.session, execute=execute)

    def seen(self, client: int) -> list[tuple[Tensor, Tensor]]:
        data = self.data[client]
        return [(data.x[index].double(), data.y[index]) for index in self.batches[client]]


def double(w: Params) -> Weights:
    return {n: t.double() for n, t in w.tensors.items()}


def on(x: Tensor, y: Tensor) -> Callable[[Weights], Tensor]:
    return lambda w: tiny_loss(w, x, y)


def plus(a: Weights, b: Weights, factor: float = 1.0) -> Weights:
    return {n: t + factor * b[n] for n, t in a.items()}


def of_length(a: Weights, rho: float) -> Weights:
    norm = sum(float((t**2).sum()) for t in a.values()) ** 0.5
    return {n: rho * t / norm if norm else t for n, t in a.items()}


def mean(all_w: Sequence[Weights], shares: Sequence[float]) -> Weights:
    whole = sum(shares)
    return {n: sum(p / whole * w[n] for p, w in zip(shares, all_w, strict=True)) for n in all_w[0]}  # type: ignore[misc]


@dataclass
class Sgd:
    """v ← ρ v + g + wd·w, w ← w − η v."""

    momentum: float = LOCAL.momentum
    decay: float = LOCAL.weight_decay
    v: Weights = field(default_factory=dict)

    def step(self, w: Weights, g: Weights) -> Weights:
        self.v = {n: self.momentum * self.v.get(n, 0.0) + g[n] + self.decay * w[n] for n in w}
        return plus(w, self.v, -RATE)


@dataclass
class SharpnessAware:
    """FedSAM: g = ∇f(w), then SGD along ∇f(w + ρ g/‖g‖)."""

    rho: float = 0.3
    uniform = False

    def method(self) -> Method:
        return fedsam(self.rho)

    def client(self, start: Weights, batches: Sequence[tuple[Tensor, Tensor]], client: int) -> Weights:
        w, rule = start, Sgd()
        for x, y in batches:
            ahead = plus(w, of_length(gradient(on(x, y), w), self.rho))
            w = rule.step(w, gradient(on(x, y), ahead))
        return w

    def close(self) -> None:
        """Nothing is kept between rounds."""


@dataclass
class Corrected(SharpnessAware):
    """FedGAMMA: w ← w − η (∇f(w̃) − c_i + c); c_i⁺ = c_i − c + (w^t − w_i)/(K η), K the
    client's own number of steps; c ← c + (1/N) Σ_S (c_i⁺ − c_i).
    """

    c: dict[int | str, Weights] = field(default_factory=dict)
    changes: list[Weights] = field(default_factory=list)
    uniform = True

    def method(self) -> Method:
        return fedgamma(self.rho)

    def client(self, start: Weights, batches: Sequence[tuple[Tensor, Tensor]], client: int) -> Weights:
        zero = {n: torch.zeros_like(t) for n, t in start.items()}
        own, common = self.c.get(client, zero), self.c.setdefault("server", zero)
        w, rule = start, Sgd(momentum=0.0, decay=0.0)
        for x, y in batches:
            ahead = plus(w, of_length(gradient(on(x, y), w), self.rho))
            w = rule.step(w, plus(plus(gradient(on(x, y), ahead), own, -1.0), common))
        moved = plus(start, w, -1.0)
        self.c[client] = plus(plus(own, common, -1.0), moved, 1 / (len(batches) * RATE))
        self.changes.append(plus(self.c[client], own, -1.0))
        return w

    def close(self) -> None:
        for change in self.changes:
            self.c["server"] = plus(self.c["server"], change, 1 / len(SIZES))
        self.changes = []


@dataclass
class Estimated(SharpnessAware):
    """FedLESAM: SGD along ∇f(w + ρ (w_old − w^t)/‖w_old − w^t‖), w_old the client's own previous download."""

    old: dict[int, Weights] = field(default_factory=dict)

    def method(self) -> Method:
        return fedlesam(self.rho)

    def client(self, start: Weights, batches: Sequence[tuple[Tensor, Tensor]], client: int) -> Weights:
        offset = of_length(plus(self.old.get(client, start), start, -1.0), self.rho)
        w, rule, self.old[client] = start, Sgd(), start
        for x, y in batches:
            w = rule.step(w, gradient(on(x, y), plus(w, offset)))
        return w


GATE = ("gate.weight", "gate.bias")


@dataclass
class Mixed(SharpnessAware):
    """FLDA: SGD of G, π_k and the gate along `times` the cross-entropy of α G + (1 − α) π_k, with
    α = σ(u·h_G + b).
    """

    times: int = 1
    initial: Weights = field(default_factory=dict)
    own: dict[int, Weights] = field(default_factory=dict)

    def method(self) -> Method:
        return flda("authors" if self.times == 2 else "original")

    def client(self, start: Weights, batches: Sequence[tuple[Tensor, Tensor]], client: int) -> Weights:
        shared = {"G." + n: t for n, t in start.items()}
        w, rule = {**shared, **self.own.get(client, self.initial)}, Sgd()

        def mixture(live: Weights, x: Tensor) -> Tensor:
            common, z = activity({n[2:]: t for n, t in live.items() if n.startswith("G.")}, x)
            alpha = torch.sigmoid(z @ live["gate.weight"] + live["gate.bias"])[:, None]
            return alpha * common + (1 - alpha) * activity(live, x)[0]

        for x, y in batches:
            loss = lambda live: self.times * F.cross_entropy(mixture(live, x), y)  # noqa: B023, E731
            w = rule.step(w, gradient(loss, w))
        self.own[client] = {n: t for n, t in w.items() if not n.startswith("G.")}
        return {n[2:]: t for n, t in w.items() if n.startswith("G.")}


@dataclass
class MixedTwice(Mixed):
    """MAP's released form: the cross-entropy counts twice, and means are uniform."""

    times: int = 2
    uniform = True


@pytest.mark.parametrize("box", [SharpnessAware, Corrected, Estimated, Mixed, MixedTwice])
def test_after_every_round_the_server_has_the_weights_of_the_paper_s_box(
    box: type[SharpnessAware],
) -> None:
    mine = box()
    tiny = Recorded(mine.method(), local=LOCAL)
    if isinstance(mine, Mixed):
        width = tiny.net.feature_dim
        gate = drawn_gate(width, 0) if mine.times == 2 else torch.zeros(width + 1)
        opened = dict(zip(GATE, (gate[:width].double(), gate[width:].double()), strict=True))
        mine.initial = {**double(fresh(tiny.net.initial.w, 0)), **opened}
    w = double(tiny.server.w)
    for chosen in ROUNDS:
        tiny.step(chosen)
        ends = [mine.client(w, tiny.seen(client), client) for client in chosen]
        w = mean(ends, [1 if mine.uniform else SIZES[client] for client in chosen])
        mine.close()
        for n, t in w.items():
            torch.testing.assert_close(tiny.server.w[n].double(), t, rtol=1e-5, atol=3e-6)
    if isinstance(mine, Mixed):
        for client, wanted in mine.own.items():
            for n, t in wanted.items():
                torch.testing.assert_close(companion(tiny, client)[n].double(), t, rtol=1e-5, atol=3e-6)


class Adam:
    """m ← 0.9 m + 0.1 g, s ← 0.999 s + 0.001 g², w ← w − η m̂/(√ŝ + 1e-8), with wd·w inside g."""

    def __init__(self, lr: float, decay: float) -> None:
        self.lr, self.decay, self.count = lr, decay, 0
        self.m: Weights = {}
        self.s: Weights = {}

    def steps(self, w: Weights, loss: Callable[[Weights], Tensor], count: int) -> Weights:
        for _ in range(count):
            g = plus(gradient(loss, w), w, self.decay)
            self.count += 1
            self.m = {n: 0.9 * self.m.get(n, 0.0) + 0.1 * g[n] for n in w}
            self.s = {n: 0.999 * self.s.get(n, 0.0) + 0.001 * g[n] ** 2 for n in w}
            first, second = 1 - 0.9**self.count, 1 - 0.999**self.count
            w = {n: w[n] - self.lr * self.m[n] / first / ((self.s[n] / second).sqrt() + 1e-8) for n in w}
        return w


def normalised(state: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """z and logits of the network with BatchNorm in evaluation mode."""
    a = x @ state["body.fc.weight"].T + state["body.fc.bias"]
    a = (a - state["body.norm.running_mean"]) / (state["body.norm.running_var"] + 1e-5).sqrt()
    z = torch.tanh(a * state["body.norm.weight"] + state["body.norm.bias"])
    return z, z @ state["head.weight"].T + state["head.bias"]


def test_fedic_s_server_is_the_three_stages_of_its_box_from_the_models_that_arrived() -> None:
    """Both server sets are smaller than a batch, so every step has all of them. Optimisers and calibrator go
    on in the second and third round. A client's model keeps its own BatchNorm statistics, and the mean of the
    features is over three, two and four participants.
    """
    rho, lr, width = 0.3, 0.02, 5
    tiny = Tiny(fedic(4, 5, 6, lr, rho), net=network(norm=True))
    a = client_data(12, range(CLASSES), 8)
    x_a, y_a = a.x.double(), a.y
    x_u = torch.randn(12, 4, generator=torch.Generator().manual_seed(7)).double()
    gates = {n: torch.zeros(size).double() for n, size in {"b0": 1, "b": 3, "u": width, "c": 1}.items()}
    gates.update({n: torch.ones(3).double() for n in "as"})
    copies, gating, students = Adam(lr, 2e-4), Adam(lr, 0.0), Adam(lr, 2e-4)

    def teacher(live: Weights, x: Tensor, clients: Sequence[Weights], calibrated: Weights) -> Tensor:
        said = [normalised(one, x) for one in clients]
        e = [torch.sigmoid(z @ live["a"] + live["b0"]) for _, z in said]
        mixed = sum(one[:, None] * z for one, (_, z) in zip(e, said, strict=True)) / sum(e)[:, None]  # type: ignore[index]
        features = sum(f for f, _ in said) / len(said)
        gamma = torch.sigmoid(features @ live["u"] + live["c"])[:, None]  # type: ignore[operator]
        return gamma * (live["s"] * mixed + live["b"]) + (1 - gamma) * normalised(calibrated, x)[1]

    for chosen in ((0, 1, 3), (1, 2), (0, 1, 2, 3)):
        uploads: list[Upload] = [one.upload for one in tiny.step(chosen).values()]
        arrived = [{**double(one.w), **double(one.b)} for one in uploads]
        average = mean(arrived, [SIZES[client] for client in chosen])
        frozen = {n: t for n, t in average.items() if "running" in n}
        start = {n: average[n] for n in tiny.server.w.names}
        supervised = lambda w: F.cross_entropy(normalised({**frozen, **w}, x_a)[1], y_a)  # noqa: B023, E731
        calibrated = {**frozen, **copies.steps(start, supervised, 4)}
        gates = gating.steps(
            gates,
            lambda live: F.cross_entropy(teacher(live, x_a, arrived, calibrated), y_a),  # noqa: B023
            5,
        )
        target = (teacher(gates, x_u, arrived, calibrated) / 2).softmax(-1)

        def distilled(w: Weights) -> Tensor:
            student = (normalised({**frozen, **w}, x_u)[1] / 2).log_softmax(-1)  # noqa: B023
            apart = (target * (target.log() - student)).sum() / len(target)  # noqa: B023
            return rho * apart + (1 - rho) * supervised(w)  # noqa: B023

        for n, t in students.steps(start, distilled, 6).items():
            torch.testing.assert_close(tiny.server.w[n].double(), t, rtol=1e-4, atol=1e-5)
        own = of_kind(tiny.server.slots["server"], Calibration)
        for n, t in gates.items():
            torch.testing.assert_close(own.gates[n].double(), t, rtol=1e-4, atol=1e-5)
