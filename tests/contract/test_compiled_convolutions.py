"""Compiled convolutions under every method: what torch's give, one client alone and in a stack.

In float32, because the kernel has no other precision; so after few steps, before training amplifies the
rounding of the kernels. All methods are slow; those that use a forward pass in different ways are fast.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from raffed.core import seeds
from raffed.core.kernels import convolution
from raffed.core.kernels.convolution import CompiledConv2d
from raffed.core.training.network import Network
from raffed.methods import METHODS
from raffed.models.net import Net
from tests.tiny import CLASSES, EVERYBODY, PLAIN, WIDTH, Tiny, clients, leaves, short

pytestmark = pytest.mark.skipif(not convolution.built, reason="raffed was installed without a C compiler")
# A companion, a solver of its own, two teachers
FAST = {"fedavg", "apfl", "pfedme", "moon"}
# Adam divides a gradient by its own size. Clients agree after so few steps, so what the server distils is
# little more than rounding, which would move weights by the server's rate
SMALL_RATE = {"feddf": {"server_lr": 1e-6}, "fedic": {"server_lr": 1e-6}}


def convolving(own: bool) -> Network:
    with seeds.forked(0):
        body = OrderedDict[str, nn.Module](
            conv=nn.Conv2d(1, 8, 2, padding=1),
            act=nn.Tanh(),
            conv2=nn.Conv2d(8, 8, 2),
            flatten=nn.Flatten(1),
            fc=nn.Linear(32, WIDTH),
            act2=nn.Tanh(),
        )
        return Network(Net(nn.Sequential(body), nn.Linear(WIDTH, CLASSES)), convolutions=own)


def federation(name: str, own: bool, cohort: bool) -> Tiny:
    """Two rounds of few steps, on images of 2 x 2."""
    data = [replace(one, x=one.x.view(-1, 1, 2, 2)) for one in clients()]
    method, local = short(name, SMALL_RATE.get(name)), replace(PLAIN, epochs=0.1, lr=0.05)
    made = Tiny(method, net=convolving(own), data=data, local=local)
    made.cohort = cohort
    made.arrange()
    return made.run(2, EVERYBODY)


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in METHODS]
)
def test_a_method_trains_as_with_torchs_convolutions_alone_and_in_a_stack(name: str) -> None:
    usual = federation(name, own=False, cohort=False)
    for cohort in (False, True):
        made = federation(name, own=True, cohort=cohort)
        assert any(isinstance(layer, CompiledConv2d) for layer in made.net.module.modules())
        for client in EVERYBODY:
            close(leaves(made.last[client].trained), leaves(usual.last[client].trained))
        close(leaves(made.server.w), leaves(usual.server.w))


def close(one: list[Tensor], other: list[Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)
