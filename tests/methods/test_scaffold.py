"""SCAFFOLD and ScaRS, with and without momentum."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from raffed.config.federation import Federation
from raffed.config.training import Local
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.context import ClientData, Context, Forward, Received, Spec
from raffed.core.ingredients import Correction
from raffed.core.messages import ServerState, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.seeds import generator
from raffed.core.training.network import Network
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import Solver
from raffed.errors import UsageError
from raffed.methods.map import scamap, scars
from raffed.methods.scaffold import ClientControl, ControlDelta, ControlVariate, ServerControl, scaffold
from raffed.models.net import Net
from raffed.runtime.run_method import with_mean
from tests.contract.test_cohort import agree_in_all, pair
from tests.tiny import PLAIN, SIZES, Tiny, bare_context, module, network, same_bits, sgd

# SCAFFOLD and ScaRS (docs/papers/baselines.md, SCAFFOLD (a)-(e); docs/papers/map.md §4).

CONTROLLED: dict[str, Method] = {
    "scaffold": scaffold(),
    "scars": scars(),
    "scamap": scamap(),
    "half": scaffold(server_lr=0.5),
}


def control(tiny: Tiny, client: int) -> Params:
    client_state = tiny.client_states.get(client)
    return client_state.slots["correction"].c if client_state else tiny.net.initial.w.zeros()  # type: ignore[attr-defined]


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("warmup", [0, 5])
def test_a_clients_control_is_the_mean_of_the_raw_gradients_it_saw(warmup: int, clip: float | None) -> None:
    """(a): corrections cancel: c_k⁺ = (1/K) Σ g(y_j), y_j the points of the corrected path. Breaks under a
    nominal rate (round 2 trains at 0.4η with warm-up), epochs for steps, momentum. With clipping the clipped
    gradients count.
    """
    local = replace(PLAIN, epochs=2, warmup_rounds=warmup, clip_norm=clip)
    tiny = Tiny(scaffold(), local=local).run(1, [0, 1, 2, 3])
    c, c_k = tiny.server.slots["correction"].c, control(tiny, 1)  # type: ignore[union-attr]
    start, data, net = State(tiny.server.w, tiny.server.b), tiny.data[1], module()
    rate = 0.1 * (0.4 if warmup else 1.0)
    y = {n: t.clone() for n, t in start.w.tensors.items()}
    seen: list[dict[str, Tensor]] = []
    for index in batch_stream(data.n, local.steps(data.n), local, generator(0, "batches", 1, 1, 0)):
        net.load_state_dict(y)
        loss = nn.functional.cross_entropy(net(data.x[index])[0], data.y[index])
        grads = torch.autograd.grad(loss, list(net.parameters()))
        if clip is not None:
            norm = torch.stack([g.norm() for g in grads]).norm()
            grads = tuple(g * min(1.0, clip / float(norm + 1e-6)) for g in grads)
        seen.append(dict(zip(y, grads, strict=True)))
        y = {n: t - rate * (seen[-1][n] - c_k[n] + c[n]) for n, t in y.items()}
    done = tiny.visit(1)
    assert len(seen) == done.steps == 6
    fresh = done.client_state.slots["correction"].c  # type: ignore[attr-defined]
    for n in y:
        mean = torch.stack([g[n] for g in seen]).mean(0)
        torch.testing.assert_close(fresh[n], mean, rtol=1e-3, atol=2e-5)
        torch.testing.assert_close(done.upload.slots["correction"].dc[n], mean - c_k[n], rtol=1e-3, atol=2e-5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CONTROLLED)
def test_the_servers_control_is_the_mean_over_all_clients_after_every_round(name: str) -> None:
    """(b): c = (1/N) Σ_{all k} c_k under partial participation (2 of 4, never-seen clients count as 0)."""
    tiny = Tiny(CONTROLLED[name], net=network(norm=True))
    for _ in range(5):
        tiny.step()
        c = tiny.server.slots["correction"].c  # type: ignore[union-attr]
        mean = sum((control(tiny, k) for k in range(1, 4)), control(tiny, 0)) / 4
        torch.testing.assert_close(c.clone().flat, mean.clone().flat, rtol=1e-5, atol=1e-6)
    assert float(c.sq_norm()) > 1e-3


def quadratic(rounds: int, corrected: bool) -> tuple[float, list[float], float]:
    """(d): f_i = a_i/2 (x − b_i)², a = (1, 4), b = (0, 3), η = 0.1, K = 5, both clients: (x, c_k, c)."""
    a, b, correction, spec = (1.0, 4.0), (0.0, 3.0), ControlVariate(), Spec(1, 1, 2, 1)
    net = Network(Net(nn.Identity(), nn.Linear(1, 1, bias=False)))
    data = ClientData(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.tensor([1]))
    x = State(Params({"head.weight": torch.full((1, 1), -1.0)}).clone(), Params({}))
    server = ServerControl(net.initial.w.zeros())
    mine = [ClientControl(net.initial.w.zeros()) for _ in a]
    for _ in range(rounds):
        ends, fold = [], []
        for i in range(2):
            k = bare_context(spec=spec, start=x, mine=mine[i], server=server)

            def loss(f: Forward, step: int, i: int = i) -> Tensor:
                return a[i] / 2 * (f.w["head.weight"].sum() - b[i]) ** 2

            bend = (lambda g, k=k: correction.gradient(g, k)) if corrected else None
            end = sgd(net, x, loss, data, [torch.tensor([0])] * 5, Solver(0.1, 0.0, 0.0), correct=bend).state
            mine[i], told = correction.finish(k.replace(state=end, steps=5, lr_sum=0.5))
            ends.append(end)
            fold.append(told)
        x = State((ends[0].w + ends[1].w) / 2, Params({}))
        server = correction.server_step(server, received(fold), spec)
    return (
        float(x.w["head.weight"]),
        [float(m.c["head.weight"]) for m in mine],
        float(server.c["head.weight"]),
    )


def received(told: list[ControlDelta]) -> Received:
    fold, w = UploadAccumulator(), Params({"w": torch.zeros(1)}).clone()
    for client, one in enumerate(told):
        fold.add(client, 0.5, Upload(None, w, Params({}), {"correction": one}), "test")
    return fold.finish(ServerState(0, w, Params({}), {}))[2]["correction"]


def test_on_unequal_quadratics_scaffold_finds_the_optimum() -> None:
    """(d), (e): x* = Σab/Σa = 2.4; c_k = ∇f_k(x*) = (2.4, −2.4), c = 0."""
    x, c_k, c = quadratic(80, corrected=True)
    assert x == pytest.approx(2.4, abs=1e-4)
    assert c_k == pytest.approx([2.4, -2.4], abs=1e-3)
    assert c == pytest.approx(0.0, abs=1e-3)


def test_on_the_same_quadratics_fedavg_ends_elsewhere() -> None:
    """(d): Σ r_i b_i / Σ r_i = 2.07751, r_i = 1 − (1 − ηa_i)^K."""
    assert quadratic(80, corrected=False)[0] == pytest.approx(2.07751, abs=1e-4)


def test_batchnorms_statistics_are_averaged_without_a_control() -> None:
    tiny = Tiny(scaffold(server_lr=0.5), net=network(norm=True))
    done = tiny.step([0, 2])
    wanted = (done[0].upload.b + done[2].upload.b) / 2
    torch.testing.assert_close(tiny.server.b.flat, wanted.flat, rtol=1e-5, atol=1e-6)
    assert all("running" not in n for n in tiny.server.slots["correction"].c.names)  # type: ignore[union-attr]


def test_the_authors_preset_moves_c_by_the_participants_alone() -> None:
    """[C]: no |S|/N; the same where all take part, |S|/N = 1/2 apart after a first round of two clients
    of four.
    """
    everybody = [0, 1, 2, 3]
    tiny, plain = Tiny(scaffold(preset="authors")).run(2, everybody), Tiny(scaffold()).run(2, everybody)
    assert same_bits(tiny.everything(), plain.everything())
    tiny, plain = Tiny(scaffold(preset="authors")), Tiny(scaffold())
    done = tiny.step([0, 2])
    plain.step([0, 2])
    c, half = tiny.server.slots["correction"].c, plain.server.slots["correction"].c  # type: ignore[union-attr]
    mean = (done[0].client_state.slots["correction"].c + done[2].client_state.slots["correction"].c) / 2  # type: ignore[union-attr]
    torch.testing.assert_close(c.flat, mean.flat, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(half.flat * 2, c.flat, rtol=1e-5, atol=1e-6)
    assert float(c.flat.abs().max()) > 0
    for made in (scars(preset="authors"), scamap(preset="authors")):
        assert made.correction == scaffold(preset="authors").correction != scaffold().correction


def test_a_round_without_messages_keeps_c() -> None:
    c = ServerControl(Params({"w": torch.ones(1)}))
    assert ControlVariate().server_step(c, Received(0), Spec(1, 1, 2, 1)) is c


# SCAFFOLD with momentum inside (NIID-Bench's and Flower's code), and corrections after the step.

INSIDE = scaffold(momentum_inside=True)
FLOWER = scaffold(momentum_inside=True, controls_by="samples")
ALL = (0, 1, 2, 3)
Weights = dict[str, Tensor]


def one_round(
    tiny: Tiny, client: int, round: int, w: Weights, c: Weights, c_i: Weights
) -> tuple[Weights, int]:
    """Train a client as both codes do: torch's SGD steps, and then each weight moves by −η (c − c_i)."""
    net, data, local = module(), tiny.data[client], tiny.local
    net.load_state_dict(w)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay
    )
    batches = batch_stream(data.n, local.steps(data.n), local, generator(0, "batches", round, client, 0))
    for index in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data.x[index])[0], data.y[index])
        for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
            p.grad = g
        optimizer.step()
        with torch.no_grad():
            for n, p in net.named_parameters():
                p.sub_(local.lr * (c[n] - c_i[n]))
    return {n: p.detach().clone() for n, p in net.named_parameters()}, len(batches)


@pytest.mark.parametrize("first", ["zeros", "network"])
@pytest.mark.parametrize("controls_by", ["clients", "samples"])
def test_three_rounds_are_those_of_a_plain_program(controls_by: str, first: str) -> None:
    """c_i⁺ = c_i − c + (w^t − w_i)/(K η), with all clients in every round, as the published tables have it.
    Flower's c moves by Σ n_i (c_i⁺ − c_i) / Σ n_j, NIID-Bench's by the mean. Both weigh models by samples, as
    `--weighting samples` does. That their controls begin at a network's weights then changes nothing.
    """
    local = replace(PLAIN, epochs=2)
    by = "samples" if controls_by == "samples" else "clients"
    method = with_mean(scaffold(momentum_inside=True, controls_by=by), Federation(weighting="samples"))  # type: ignore[arg-type]
    tiny = Tiny(method, local=local)
    w = {n: t.clone() for n, t in tiny.server.w.tensors.items()}
    begin = {n: t.clone() if first == "network" else torch.zeros_like(t) for n, t in w.items()}
    c, own = begin, [begin] * 4
    samples = [n / sum(SIZES) for n in SIZES]
    share = samples if by == "samples" else [1 / 4] * 4
    for round in range(3):
        ends, fresh = [], []
        for i in ALL:
            end, steps = one_round(tiny, i, round, w, c, own[i])
            ends.append(end)
            fresh.append({n: own[i][n] - c[n] + (w[n] - end[n]) / (steps * local.lr) for n in w})
        c = {n: c[n] + sum(share[i] * (fresh[i][n] - own[i][n]) for i in ALL) for n in w}  # type: ignore[misc]
        w = {n: sum(samples[i] * ends[i][n] for i in ALL) for n in w}  # type: ignore[misc]
        own = fresh
    tiny.run(3, ALL)
    for n in w:
        torch.testing.assert_close(tiny.server.w[n], w[n], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tiny.server.slots["correction"].c[n], c[n], rtol=1e-3, atol=1e-4)  # type: ignore[union-attr]
        for i in ALL:
            torch.testing.assert_close(control(tiny, i)[n], own[i][n], rtol=1e-3, atol=1e-4)


def test_without_momentum_it_is_scaffold_to_rounding() -> None:
    """w − η g − η (c − c_i) = w − η (g − c_i + c)."""
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0)
    inside, plain = (Tiny(m, local=local).run(4) for m in (INSIDE, scaffold()))
    torch.testing.assert_close(inside.server.w.flat, plain.server.w.flat, rtol=1e-5, atol=1e-6)
    assert not same_bits(plain.server, Tiny(INSIDE, local=PLAIN).run(4).server)


def test_a_constant_gradient_gives_a_control_of_what_momentum_makes_of_it() -> None:
    """Where a client sees the same gradient g in each of K steps, it moves by η Σ_j (1 − ρ^j)/(1 − ρ) g, and
    c_i⁺ is the mean of these factors times g: 4.39 g for ρ = 0.9 and K = 11, where plain SGD has g.
    """
    momentum, steps = 0.9, 11  # whole batches at a rate at which the gradient hardly changes
    local = Local(lr=1e-4, momentum=momentum, weight_decay=0.0, batch_size=64, epochs=steps)
    tiny, net = Tiny(INSIDE, local=local), module()
    done, data = tiny.visit(0), tiny.data[0]
    loss = nn.functional.cross_entropy(net(data.x)[0], data.y)
    slopes = dict(zip(tiny.server.w.names, torch.autograd.grad(loss, list(net.parameters())), strict=True))
    factor = sum((1 - momentum**j) / (1 - momentum) for j in range(1, steps + 1)) / steps
    assert factor == pytest.approx(4.386, abs=1e-3)
    for n, g in slopes.items():
        c = done.client_state.slots["correction"].c[n]  # type: ignore[attr-defined]
        torch.testing.assert_close(c, factor * g, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("momentum_inside", [False, True])
def test_by_samples_c_is_the_weighted_mean_of_all_controls_after_every_round(momentum_inside: bool) -> None:
    """c = Σ_{all k} (n_k/Σ_j n_j) c_k also if 2 of 4 clients take part."""
    tiny = Tiny(scaffold(momentum_inside=momentum_inside, controls_by="samples"))
    for _ in range(5):
        tiny.step()
        c = tiny.server.slots["correction"].c  # type: ignore[union-attr]
        shares = [n / sum(SIZES) for n in SIZES]
        mean = control(tiny, 0) * shares[0]
        for k in (1, 2, 3):
            mean = mean + control(tiny, k) * shares[k]
        torch.testing.assert_close(c.clone().flat, mean.clone().flat, rtol=1e-5, atol=1e-6)
    assert float(c.sq_norm()) > 1e-3


@pytest.mark.parametrize("local", [PLAIN, replace(PLAIN, schedule="cosine", schedule_by="step", epochs_to=3)])
@pytest.mark.parametrize("method", [INSIDE, FLOWER], ids=["inside", "flower"])
def test_stacked_clients_end_where_they_end_alone(method: Method, local: Local) -> None:
    """Also with a rate for each step and client, where clients of one stack have different ones."""
    agree_in_all(*pair(Tiny(method, local=local).run(2, ALL)))


def test_the_runs_momentum_and_weight_decay_apply_only_inside() -> None:
    other = replace(PLAIN, momentum=0.5, weight_decay=0.1)
    for method, applies in ((INSIDE, True), (scaffold(), False)):
        one, two = (Tiny(method, local=local).run(2).server for local in (PLAIN, other))
        assert same_bits(one, two) != applies


def test_the_authors_preset_has_neither_of_them() -> None:
    for args in ({"momentum_inside": True}, {"controls_by": "samples"}):
        with pytest.raises(UsageError, match="preset authors is MAP's code"):
            scaffold(preset="authors", **args)  # type: ignore[arg-type]


class Shrink(Correction):
    """w ← (1 − η λ) w after every step: weight decay that momentum does not see."""

    plain_sgd = False
    rate: float = 0.5

    def after_step(self, w: Params, lr: float | Tensor, k: Context) -> Params:
        return w * (1 - lr * self.rate)


@pytest.mark.parametrize("cohort", [False, True])
def test_ones_own_correction_moves_the_weights_after_the_optimisers_step(cohort: bool) -> None:
    """One step without momentum: (1 − ηλ)(w − η g), where the step of plain SGD is w − η g."""
    local = Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=64, epochs=1)
    plain, shrunk = (
        Tiny(Method("own", correction=one), local=local, cohort=cohort).run(1, ALL).server.w.flat
        for one in (None, Shrink())
    )
    torch.testing.assert_close(shrunk, plain * 0.95, rtol=1e-5, atol=1e-6)
