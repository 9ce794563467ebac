"""SCAFFOLD and ScaRS (docs/papers/baselines.md, SCAFFOLD (a)-(e); docs/papers/map.md §4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.context import ClientData, Forward, Received, Spec
from raffed.core.messages import ServerState, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.seeds import generator
from raffed.core.training.network import Network
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import Solver
from raffed.methods.map import scamap, scars
from raffed.methods.scaffold import ClientControl, ControlDelta, ControlVariate, ServerControl, scaffold
from raffed.models.net import Net
from tests.tiny import PLAIN, Tiny, bare_context, module, network, same_bits, sgd

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


def test_after_one_full_batch_step_the_control_is_the_gradient_at_the_downloaded_model() -> None:
    """docs/design.md §12: K = 1, full batch: c_i = ∇F_i(w^t)."""
    local = Local(lr=0.3, momentum=0.9, weight_decay=0.1, batch_size=64, epochs=1)
    tiny = Tiny(scaffold(), local=local).run(2)
    done, net = tiny.visit(0), module()
    net.load_state_dict(tiny.server.w.tensors)
    loss = nn.functional.cross_entropy(net(tiny.data[0].x)[0], tiny.data[0].y)
    for (n, _), g in zip(
        net.named_parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
    ):
        torch.testing.assert_close(done.client_state.slots["correction"].c[n], g, rtol=1e-4, atol=1e-6)  # type: ignore[attr-defined]


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


def test_clients_train_by_plain_sgd_whatever_the_run_says() -> None:
    """[O], [C]: no momentum, no weight decay."""
    strong = replace(PLAIN, momentum=0.99, weight_decay=1.0)
    plain = replace(PLAIN, momentum=0.0, weight_decay=0.0)
    assert same_bits(
        Tiny(scaffold(), local=strong).run(2).server, Tiny(scaffold(), local=plain).run(2).server
    )


def test_means_are_uniform_whatever_the_clients_sizes() -> None:
    """[O]: ω ← ω + η_g · mean_S(Δy); sizes 8 and 6, η_g = 0.5."""
    tiny = Tiny(scaffold(server_lr=0.5))
    done = tiny.step([0, 2])
    mean = (done[0].upload.w + done[2].upload.w) / 2
    wanted = tiny.net.initial.w + (mean - tiny.net.initial.w) * 0.5
    torch.testing.assert_close(tiny.server.w.flat, wanted.flat, rtol=1e-5, atol=1e-6)
    assert done[0].upload.n is None


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
