"""The opening of a round: what a client makes of the downloaded model before its passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Gradient, Opening
from raffed.core.method import Method
from raffed.core.params import State
from raffed.core.round import between_rounds
from raffed.core.training.session import Participant
from raffed.methods.fedavg import fedavg
from tests.contract.test_cohort import agree_in_all, pair
from tests.tiny import PLAIN, Tiny, network, same_bits


class Doubled(Opening):
    """The passes begin with twice the downloaded weights."""

    def begin(self, k: Context) -> State:
        return State(k.w0 * 2.0, k.start.b)


class Steps(Opening):
    """Plain gradient descent on the features' distance to a point, before the passes."""

    rate: float = 0.05
    share: float = 1.0

    def epochs(self, k: Context) -> float:
        return float(k.client % 3)  # client 0 and 3 have none

    def samples(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(n, generator=generator)[: max(round(self.share * n), 1)]

    def loss(self, f: Forward, k: Context) -> Tensor:
        return (f.z - 1.0).square().mean()

    def step(self, carried: State, gradient: Gradient, k: Context) -> State:
        slope, b = gradient(carried, 0)
        return State(carried.w - slope * self.rate, b)


def method(opening: Opening, **more: Any) -> Method:
    return Method("Opened", opening=opening, **more)


def test_training_begins_with_what_the_opening_returns() -> None:
    """Also without epochs. The round still reports the downloaded model as its start."""
    tiny = Tiny(method(Doubled()), local=replace(PLAIN, lr=0.0)).run(1, [0, 1])
    sent = tiny.server.w
    assert same_bits(tiny.visit(0).trained.w, sent * 2.0)
    assert same_bits(tiny.visit(0).start.w, sent)
    assert all(same_bits(view.start.w, sent * 2.0) for view in tiny.visit(0).views.values())


def test_between_rounds_a_client_s_model_is_the_one_after_the_opening() -> None:
    tiny = Tiny(method(Doubled())).run(2, [0, 1])
    held = between_rounds(
        tiny.method, tiny.server.broadcast(), Participant(0, None, tiny.data[0]), tiny.session
    )
    assert same_bits(held.trained.w, tiny.server.w * 2.0)


def test_one_epoch_of_the_opening_is_gradient_descent_from_the_download() -> None:
    """Client 1 has 10 samples, which are one batch: w − η ∇L(w), computed by hand."""
    local = replace(PLAIN, lr=0.0, batch_size=64)
    tiny = Tiny(method(Steps()), local=local)
    x, w = tiny.data[1].x, tiny.server.w.tensors["body.fc.weight"].clone().requires_grad_()
    z = torch.tanh(x @ w.T + tiny.server.w["body.fc.bias"])
    (slope,) = torch.autograd.grad((z - 1.0).square().mean(), [w])
    done = tiny.visit(1)
    torch.testing.assert_close(done.trained.w["body.fc.weight"], (w - 0.05 * slope).detach())
    assert same_bits(done.trained.w["head.weight"], tiny.server.w["head.weight"])


def test_clients_with_and_without_epochs_train_together_as_each_alone() -> None:
    """Clients 0 and 3 open without epochs, client 2 with two."""
    for share in (1.0, 0.6):
        for norm in (False, True):
            agree_in_all(*pair(Tiny(method(Steps(share=share)), net=network(norm)).run(2, [0, 1, 2, 3])))


def test_its_steps_are_not_those_of_the_passes_and_its_samples_are_a_stream_of_its_own() -> None:
    """Whatever the opening draws, the batches of the passes stay: with rate 0 the result is FedAvg's."""
    mine, plain = Tiny(method(Steps(0.0, 0.5))).run(3), Tiny(fedavg()).run(3)
    assert same_bits(mine.server, plain.server)
    assert [one.steps for one in mine.last.values()] == [one.steps for one in plain.last.values()]
    assert not same_bits(Tiny(method(Steps())).run(3).server, plain.server)
