"""Layers below the part that is trained: applied once a stretch, with the results of applying them in
every step.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.config.training import Local
from raffed.core.context import Forward
from raffed.core.params import State
from raffed.core.parts import Part
from raffed.core.seeds import generator
from raffed.core.stacked.executor import stacked
from raffed.core.training.network import Network
from raffed.core.training.session import one_by_one
from raffed.core.training.sgd import batch_stream
from raffed.core.training.task import ClientTask, Solver, TrainingPhase
from raffed.models import build
from tests.tiny import clients, network, sgd

SOLVER = Solver(0.1, 0.9, 1e-3)


def ce(f: Forward, step: int) -> Tensor:
    """Cross-entropy with a pull on the features, which has a gradient under the projection alone."""
    return F.cross_entropy(f.logits, f.y) + 0.1 * f.z.square().mean()


def batches(n: int, epochs: int) -> list[Tensor]:
    steps = epochs * -(-n // 4)
    return batch_stream(n, steps, Local(batch_size=4), generator(0, "batches", 0, 0))


def projected() -> Network:
    return Network(build("mlp5", (1, 4, 1), 3, 0, hidden=[6, 5], projection=7))


@pytest.mark.parametrize(
    ("part", "net"),
    [("head", network(norm=True)), ("head", projected()), ("top", projected()), ("top", network())],
)
def test_a_resting_layer_applied_once_gives_what_it_gives_applied_in_every_step(
    part: Part, net: Network
) -> None:
    """An augmentation that changes nothing makes the loop apply all layers in every step."""
    own = clients()[3]
    x = own.x.view(-1, 1, 4, 1) if net.w_layout.names[0].startswith("body.encoder") else own.x
    data = own.__class__(x, own.y, own.class_counts)
    once = sgd(net, net.initial, ce, data, batches(data.n, 3), SOLVER, part=part)
    every = sgd(net, net.initial, ce, data, batches(data.n, 3), SOLVER, part=part, augment=lambda x: x)
    torch.testing.assert_close(once.state.w.flat, every.state.w.flat, rtol=1e-6, atol=1e-7)
    assert once.loss == pytest.approx(every.loss, rel=1e-6)
    assert not torch.equal(once.state.w.flat, net.initial.w.flat)


@pytest.mark.parametrize("part", ["head", "top"])
def test_a_stack_enters_above_the_resting_layers_of_each_of_its_clients(part: Part) -> None:
    net = network(norm=True)
    starts = [net.initial, State(net.initial.w * 1.5, net.initial.b)]
    task = ClientTask(lambda f, views: ce(f, 0), SOLVER, part)
    stretches = [
        TrainingPhase(start, batches(data.n, 3), data, {})
        for start, data in zip(starts, clients(), strict=False)
    ]
    for a, b in zip(stacked(net, task, stretches, None), one_by_one(net, task, stretches, None), strict=True):
        torch.testing.assert_close(a.state.w.flat, b.state.w.flat, rtol=1e-5, atol=1e-6)
