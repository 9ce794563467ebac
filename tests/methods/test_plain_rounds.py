"""Whole rounds of methods with one shared model, against the papers' algorithms in plain torch.

Two or three of four clients of unequal sizes and with missing classes take part in each of four rounds. What
is compared is what the server sends after every round, and the model that is scored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn

from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.seeds import generator
from raffed.core.training.sgd import batch_stream
from raffed.methods.feddyn import feddyn
from raffed.methods.fednova import fednova
from raffed.methods.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from raffed.methods.fedprox import fedprox
from raffed.methods.moon import moon
from raffed.methods.scaffold import scaffold
from tests.tiny import PLAIN, Tiny, client_data, module

CHOSEN = ((0, 1, 3), (1, 2), (0, 2, 3), (1, 3))
OWNED = ((0, 1), (1, 2), (0,), (0, 1, 2))
SIZES = (5, 14, 3, 11)
ALL = sum(SIZES)
N = len(SIZES)
DATA = [client_data(n, owned, 20 + i) for i, (n, owned) in enumerate(zip(SIZES, OWNED, strict=True))]
LOCAL = replace(PLAIN, lr=0.2, epochs=2)
NET = module()
Extra = Callable[[Tensor, Tensor], Tensor]  # (w, images) -> what is added to the loss
Bend = Callable[[Tensor, Tensor], Tensor]  # (w, w^t) -> what is added to the gradient


@dataclass
class Rounds:
    """What the plain programs know: how clients train, the model, and a memory of every client."""

    clip: float | None = None
    momentum: float = LOCAL.momentum
    decay: float = LOCAL.weight_decay
    w: Tensor = field(default_factory=lambda: torch.cat([p.detach().reshape(-1) for p in NET.parameters()]))
    kept: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = [torch.zeros_like(self.w) for _ in SIZES]

    def client(self, t: int, c: int, extra: Extra | None = None, bend: Bend | None = None) -> Trained:
        """SGD with momentum on the cross-entropy and `extra`, whose gradient is bent, then clipped."""
        at, v, seen = self.w, torch.zeros_like(self.w), []
        steps = int(LOCAL.epochs) * -(-SIZES[c] // LOCAL.batch_size)
        for index in batch_stream(SIZES[c], steps, LOCAL, generator(0, "batches", t, c, 0)):
            live, x = at.clone().requires_grad_(), DATA[c].x[index]
            loss = nn.functional.cross_entropy(outputs(live, x)[0], DATA[c].y[index])
            (g,) = torch.autograd.grad(loss if extra is None else loss + extra(live, x), live)
            seen.append(g)
            g = g if bend is None else g + bend(at, self.w)
            if self.clip is not None:
                g = g * min(1.0, self.clip / float(g.norm() + 1e-6))
            v = self.momentum * v + g + self.decay * at
            at = at - LOCAL.lr * v
        return Trained(at, torch.stack(seen).mean(0), len(seen))


@dataclass
class Trained:
    """A local model, the mean of the gradients of its loss, and the number of its steps."""

    w: Tensor
    gradient: Tensor
    steps: int


def outputs(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and features of the network whose weights are the vector w."""
    named = dict(NET.named_parameters())
    parts = w.split([p.numel() for p in named.values()])
    made = {name: part.view_as(p) for (name, p), part in zip(named.items(), parts, strict=True)}
    out: tuple[Tensor, Tensor] = torch.func.functional_call(NET, made, (x,))
    return out


def flat(w: Params) -> Tensor:
    return torch.cat([w[name].reshape(-1) for name, _ in NET.named_parameters()])


def weighted(chosen: Sequence[int], each: Sequence[Tensor | float]) -> Tensor:
    total = sum(SIZES[c] for c in chosen)
    return torch.as_tensor(sum(SIZES[c] / total * one for c, one in zip(chosen, each, strict=True)))


def check(method: Method, rounds: list[tuple[Tensor, Tensor]], clip: float | None = None) -> None:
    """Compare what is sent and what is scored after every round."""
    tiny = Tiny(method, data=DATA, local=replace(LOCAL, clip_norm=clip))
    start = flat(tiny.server.w)
    for chosen, (sent, scored) in zip(CHOSEN, rounds, strict=True):
        tiny.step(chosen)
        rule, own = tiny.method.server, tiny.server.slots.get("server")
        found = flat(tiny.server.w), flat(rule.evaluation_weights(own, tiny.server.w))
        torch.testing.assert_close(found[0], sent, rtol=1e-5, atol=3e-6)
        torch.testing.assert_close(found[1], scored, rtol=1e-5, atol=3e-6)
    assert float((sent - start).abs().max()) > 0.02


@pytest.mark.parametrize("clip", [None, 0.5])
def test_fedprox_adds_mu_times_the_way_from_the_download_to_the_gradient(clip: float | None) -> None:
    """Li et al. 2020, with means by samples."""
    own, rounds = Rounds(clip), []
    for t, chosen in enumerate(CHOSEN):
        own.w = weighted(
            chosen, [own.client(t, c, bend=lambda w, start: 0.7 * (w - start)).w for c in chosen]
        )
        rounds.append((own.w, own.w))
    check(fedprox(0.7), rounds, clip)


@pytest.mark.parametrize(("scaled", "clip"), [(False, None), (True, None), (True, 0.5)])
def test_feddyns_clients_and_server_remember_gradients(scaled: bool, clip: float | None) -> None:
    """Acar et al. 2021: g − h_k + α (w − w^t), h_k ← h_k − α (w_k − w^t), h ← h − (α/N) Σ (w_k − w^t), and
    mean w_k − h/α is sent. Scaled: in h_k's rule α is divided by N times the client's share of the samples.
    The whole gradient is clipped.
    """
    own, rounds, h = Rounds(clip), [], torch.zeros_like(Rounds().w)
    for t, chosen in enumerate(CHOSEN):
        start, ends = own.w, []
        for c in chosen:
            a = 0.3 * ALL / (N * SIZES[c]) if scaled else 0.3
            end = own.client(t, c, bend=functools.partial(dynamic, a, own.kept[c])).w
            own.kept[c] = own.kept[c] - a * (end - start)
            ends.append(end)
            h = h - 0.3 * (end - start) / N
        mean = torch.stack(ends).mean(0)
        own.w = mean - h / 0.3
        rounds.append((own.w, mean))
    check(feddyn(0.3, scaled=scaled), rounds, clip)


def dynamic(a: float, h: Tensor, w: Tensor, start: Tensor) -> Tensor:
    return a * (w - start) - h


def test_scaffolds_controls_are_mean_gradients_and_their_mean() -> None:
    """Karimireddy et al. 2020, option II: steps of g − c_k + c, after which c_k is the mean of the gradients
    that the client saw; c is the mean of all c_k.
    """
    own, rounds = Rounds(momentum=0.0, decay=0.0), []
    for t, chosen in enumerate(CHOSEN):
        c_all, ends = torch.stack(own.kept).mean(0), []
        for c in chosen:
            done = own.client(t, c, bend=functools.partial(constant, c_all - own.kept[c]))
            own.kept[c] = done.gradient
            ends.append(done.w)
        own.w = 0.5 * own.w + 0.5 * torch.stack(ends).mean(0)
        rounds.append((own.w, own.w))
    check(scaffold(0.5), rounds)


def constant(bend: Tensor, w: Tensor, start: Tensor) -> Tensor:
    return bend


def test_moons_contrast_is_with_the_download_and_the_clients_last_model() -> None:
    """Li et al. 2021: −log of the share of e^{cos/τ} that the download has of both. At a client's first visit
    its last model is the download.
    """
    own, rounds, last = Rounds(), [], dict[int, Tensor]()
    for t, chosen in enumerate(CHOSEN):
        ends = [
            own.client(t, c, extra=functools.partial(contrast, own.w, last.get(c, own.w))).w for c in chosen
        ]
        last.update(zip(chosen, ends, strict=True))
        own.w = weighted(chosen, ends)
        rounds.append((own.w, own.w))
    check(moon(2.0, 0.4), rounds)


def contrast(download: Tensor, last: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """2 times the mean over the images, τ = 0.4."""
    z, g, p = (outputs(one, x)[1] for one in (w, download, last))
    near, far = (torch.cosine_similarity(z, other).div(0.4).exp() for other in (g, p))
    return -2.0 * (near / (near + far)).log().mean()


@pytest.mark.parametrize("gmf", [0.0, 0.6])
def test_fednova_divides_by_what_momentum_makes_of_the_steps(gmf: float) -> None:
    """Wang et al. 2020: step s is worth 1 + ρ + … + ρ^(τ_k − s), a_k in all. w goes Σ p_k a_k times the mean
    of (w_k − w)/a_k, and the server has its own momentum.
    """
    own, rounds, m = Rounds(), [], torch.zeros_like(Rounds().w)
    for t, chosen in enumerate(CHOSEN):
        done = [own.client(t, c) for c in chosen]
        a = [sum(LOCAL.momentum**i for s in range(one.steps) for i in range(s + 1)) for one in done]
        moves = [(one.w - own.w) / norm for one, norm in zip(done, a, strict=True)]
        m = gmf * m + weighted(chosen, a) * weighted(chosen, moves)
        own.w = own.w + m
        rounds.append((own.w, own.w))
    check(fednova(gmf=gmf), rounds)


def adam(v: Tensor, d: Tensor) -> Tensor:
    return 0.99 * v + 0.01 * d**2


def adagrad(v: Tensor, d: Tensor) -> Tensor:
    return v + d**2


def yogi(v: Tensor, d: Tensor) -> Tensor:
    """Towards d², by a hundredth of d²."""
    return torch.where(d**2 > v, v + 0.01 * d**2, v - 0.01 * d**2)


@pytest.mark.parametrize(
    ("method", "second", "beta1"),
    [
        (fedadam(0.05, weighting="samples"), adam, 0.9),
        (fedyogi(0.05, weighting="samples"), yogi, 0.9),
        (fedadagrad(0.05, weighting="samples"), adagrad, 0.0),
        (fedadagrad(0.05, 0.9, weighting="samples"), adagrad, 0.9),
        (fedavgm(0.9, 0.7), None, 0.9),
    ],
)
def test_the_servers_optimisers_step_along_the_mean_update(
    method: Method, second: Callable[[Tensor, Tensor], Tensor] | None, beta1: float
) -> None:
    """Reddi et al. 2021, Algorithm 2; Hsu et al. 2019, v ← βv + Δ, whose momentum is not damped."""
    own, rounds = Rounds(), []
    m, v = torch.zeros_like(own.w, dtype=torch.float64), torch.full_like(own.w, 1e-6, dtype=torch.float64)
    for t, chosen in enumerate(CHOSEN):
        d = (weighted(chosen, [own.client(t, c).w for c in chosen]) - own.w).double()
        if second is None:
            m = beta1 * m + d
            own.w = (own.w + 0.7 * m).float()
        else:
            m, v = beta1 * m + (1 - beta1) * d, second(v, d)
            own.w = (own.w + 0.05 * m / (v.sqrt() + 1e-3)).float()
        rounds.append((own.w, own.w))
    check(method, rounds)
