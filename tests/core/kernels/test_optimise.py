"""One function puts the faster layers into a network, and one switch leaves all of them out."""

from __future__ import annotations

import copy

import pytest
import torch

from raffed.core.kernels import optimise
from raffed.core.training.network import Network
from raffed.models import build

SHAPES = {"lenet": (1, 28, 28), "mlpnet": (1, 28, 28)}


@pytest.mark.parametrize("name", SHAPES)
def test_without_kernels_every_layer_is_torchs(name: str) -> None:
    plain, replaced = build(name, SHAPES[name], 10, 0), build(name, SHAPES[name], 10, 0)
    before = [type(layer) for layer in plain.modules()]
    net = Network(plain, onednn=True, kernels=False)
    assert net.functional.chain is None
    assert [type(layer) for layer in plain.modules()] == before
    assert (optimise(replaced, onednn=True) is not None) == (name == "mlpnet")
    assert [type(layer) for layer in replaced.modules()] != before


@pytest.mark.parametrize("name", SHAPES)
def test_replaced_layers_compute_what_plain_ones_do(name: str) -> None:
    module = build(name, SHAPES[name], 10, 0)
    x = torch.rand(5, *SHAPES[name], generator=torch.Generator().manual_seed(1))
    replaced, plain = Network(copy.deepcopy(module)), Network(copy.deepcopy(module), kernels=False)
    outputs = zip(replaced.apply(replaced.initial, x), plain.apply(plain.initial, x), strict=True)
    for ours, theirs in outputs:
        torch.testing.assert_close(ours, theirs)
