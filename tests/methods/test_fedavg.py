"""FedAvg (docs/papers/baselines.md, FedAvg (1)-(5), and G5, G6, G7)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from raffed.config.training import Local
from raffed.core.params import State
from raffed.core.seeds import generator
from raffed.core.training.sgd import batch_stream
from raffed.methods.fedavg import fedavg
from raffed.methods.fedprox import fedprox
from tests.tiny import PLAIN, Tiny, clients, module, network, same_bits

FULL_BATCH = Local(lr=0.3, momentum=0.0, weight_decay=0.0, batch_size=64, epochs=1)


@pytest.mark.parametrize("norm", [False, True])
def test_one_client_holding_everything_is_centralised_sgd_with_momentum_reset_every_round(norm: bool) -> None:
    """(1), G5: torch.optim.SGD made anew every E epochs, on the batches of the derived stream."""
    data = clients(owned=((0, 1, 2),), sizes=(18,))
    local = replace(PLAIN, epochs=2, batch_size=5)
    tiny = Tiny(fedavg(), net=network(norm), data=data, local=local).run(3)
    net = module(norm)
    for round in range(3):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        for index in batch_stream(18, 8, local, generator(0, "batches", round, 0, 0)):
            optimiser.zero_grad()
            F.cross_entropy(net(data[0].x[index])[0], data[0].y[index]).backward()
            optimiser.step()
    for name, p in net.named_parameters():
        torch.testing.assert_close(tiny.server.w[name], p.detach(), rtol=1e-4, atol=1e-5)
    for name, buffer in net.named_buffers():
        if buffer.is_floating_point():
            torch.testing.assert_close(tiny.server.b[name], buffer, rtol=1e-4, atol=1e-5)


def test_the_average_of_a_single_client_is_its_model_bit_for_bit() -> None:
    """p = 1: nothing but a rounding to 2^-44, below the last bit of every weight above 2^-20 in size."""
    tiny = Tiny(fedavg())
    done = tiny.step([3])
    w = done[3].upload.w
    big = w.flat.abs() > 2.0**-20
    assert torch.equal(tiny.server.w.flat[big], w.flat[big])


def test_one_full_batch_step_is_one_gradient_step_on_the_pooled_loss() -> None:
    """(2): Σ p_k (w − η∇f_k) = w − η∇f with f the mean over all samples."""
    tiny = Tiny(fedavg(), local=FULL_BATCH)
    start, net = tiny.net.initial, module()
    tiny.step([0, 1, 2, 3])
    x, y = torch.cat([c.x for c in tiny.data]), torch.cat([c.y for c in tiny.data])
    grads = torch.autograd.grad(F.cross_entropy(net(x)[0], y), list(net.parameters()))
    for (name, _), g in zip(net.named_parameters(), grads, strict=True):
        torch.testing.assert_close(tiny.server.w[name], start.w[name] - 0.3 * g, rtol=1e-5, atol=1e-6)


def test_only_participants_are_averaged_by_their_share_of_the_participants_samples() -> None:
    """(3): clients 0 and 2 hold 8 and 6 samples: 8/14 and 6/14."""
    tiny = Tiny(fedavg())
    done = tiny.step([0, 2])
    wanted = done[0].upload.w * (8 / 14) + done[2].upload.w * (6 / 14)
    torch.testing.assert_close(tiny.server.w.flat, wanted.flat, rtol=1e-6, atol=1e-7)


def test_batchnorms_statistics_are_averaged_like_the_weights() -> None:
    """G7."""
    tiny = Tiny(fedavg(), net=network(norm=True))
    done = tiny.step([0, 2])
    wanted = done[0].upload.b * (8 / 14) + done[2].upload.b * (6 / 14)
    torch.testing.assert_close(tiny.server.b.flat, wanted.flat, rtol=1e-6, atol=1e-7)
    assert not same_bits(done[0].upload.b, done[2].upload.b)


def test_clients_that_do_not_move_leave_the_model_where_it_is() -> None:
    """(4), to 2^-45 a client: η = 0."""
    tiny = Tiny(fedavg(), local=replace(PLAIN, lr=0.0)).run(3)
    torch.testing.assert_close(tiny.server.w.flat, tiny.net.initial.w.flat, rtol=1e-7, atol=1e-12)


def test_two_rounds_of_one_epoch_are_not_one_round_of_two_with_momentum() -> None:
    """(5): the velocity is forgotten between rounds. Full batches, one client, so the order plays no part."""
    data = clients(owned=((0, 1, 2),), sizes=(12,))

    def ends(momentum: float, rounds: int, epochs: int) -> State:
        local = replace(FULL_BATCH, momentum=momentum, epochs=epochs)
        server = Tiny(fedavg(), data=data, local=local).run(rounds).server
        return State(server.w, server.b)

    torch.testing.assert_close(ends(0.0, 2, 1).w.flat, ends(0.0, 1, 2).w.flat, rtol=1e-5, atol=1e-6)
    assert (ends(0.9, 2, 1).w.flat - ends(0.9, 1, 2).w.flat).abs().max() > 1e-3


def test_a_client_keeps_nothing_and_is_scored_with_the_model_it_just_trained() -> None:
    tiny = Tiny(fedavg())
    done = tiny.step([0])[0]
    assert tiny.client_states == {}
    assert done.personal_state(tiny.method) is done.trained


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_the_order_in_which_participants_are_trained_does_not_matter(mu: float) -> None:
    """G6, here bit for bit."""
    assert same_bits(
        Tiny(fedprox(mu)).run(2, [0, 1, 2, 3]).everything(),
        Tiny(fedprox(mu)).run(2, [2, 0, 3, 1]).everything(),
    )
