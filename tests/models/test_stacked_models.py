"""Stacked clients have the gradients, logits and buffers of each client alone, for every model."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training.network import Network
from raffed.core.training.seeded_dropout import draw
from raffed.models import MODELS
from raffed.models.net import Net
from tests.models.small_models import BATCH_NORM, DROPOUT, HEAVY, STILL, inputs, small

State = dict[str, Tensor]


def one_client(
    net: Net, params: State, buffers: State, x: Tensor, y: Tensor
) -> tuple[State, tuple[Tensor, State]]:
    """Gradients of the mean cross-entropy, the logits, and the buffers as the forward pass left them."""

    def loss(params: State, buffers: State) -> tuple[Tensor, tuple[Tensor, State]]:
        logits, _ = functional_call(net, (params, buffers), (x,))
        return F.cross_entropy(logits, y), (logits, buffers)

    return grad(loss, has_aux=True)(params, buffers)


# Their blocks are those of vgg8, vgg8_bn, resnet18_gn and resnet8; B0 is stacked with its dropout below
MADE_OF_OTHERS = {"efficientnet_b0", "resnet18", "vgg11", "vgg11_bn", "vgg11_dropout", "vgg16_bn"}


def is_slow(name: str, train: bool) -> bool:
    """Deep networks that are made of the blocks of others, and all but one deep network in evaluation."""
    return name in MADE_OF_OTHERS or (name in HEAVY - {"vgg8_bn"} and not train)


@pytest.mark.parametrize(
    ("name", "train"),
    [
        pytest.param(name, train, marks=[pytest.mark.slow] if is_slow(name, train) else [])
        for name in MODELS
        for train in (True, False)
    ],
)
def test_two_stacked_clients_have_the_gradients_and_buffers_of_each_alone(name: str, train: bool) -> None:
    """In float64, so that what differs is an error and not the rounding of 50 layers."""
    nets = [small(name, seed, **STILL.get(name, {})).train(train).double() for seed in (1, 2)]
    x = inputs(name, 2, 2 if name in HEAVY else 4).double()
    y = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])[:, : x.shape[1]]
    params, before = stack_module_state(nets)
    stateless, buffers = copy.deepcopy(nets[0]), {key: buffer.clone() for key, buffer in before.items()}
    stacked = vmap(lambda p, b, x, y: one_client(stateless, p, b, x, y))(params, buffers, x, y)
    grads, (logits, after) = stacked
    for i, net in enumerate(nets):
        own_params = {key: p.detach() for key, p in net.named_parameters()}
        own_buffers = {key: b.clone() for key, b in net.named_buffers()}
        grads_i, (logits_i, after_i) = one_client(stateless, own_params, own_buffers, x[i], y[i])
        torch.testing.assert_close(logits[i], logits_i, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close({k: g[i] for k, g in grads.items()}, grads_i, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close({k: b[i] for k, b in after.items()}, after_i, rtol=1e-9, atol=1e-12)
    assert any(g.abs().max() > 1e-4 for g in grads.values())
    moved = [key for key in before if not torch.equal(after[key], before[key])]
    assert moved == (list(before) if train and name in BATCH_NORM else [])


@pytest.mark.parametrize("name", DROPOUT)
def test_stacked_clients_drop_what_each_alone_drops_from_its_own_stream(name: str) -> None:
    """One training pass: numbers drawn by the layers as they run against numbers drawn before, in the
    order of use.
    """
    net = Network(small(name))
    x, y = inputs(name, 4), torch.zeros(4, dtype=torch.int64)
    shapes = net.noise_shapes(x)
    assert len(shapes) == DROPOUT[name]
    alone, given = [], []
    for seed in (11, 12):
        net.load(net.initial)
        net.noise.generator = torch.Generator().manual_seed(seed)
        alone.append(net.forward(x, y).logits)
        given.append(draw(shapes, torch.Generator().manual_seed(seed)))
    uniform = [torch.stack(column) for column in zip(*given, strict=True)]
    w = net.initial.w.tensors
    b = {key: torch.stack([t, t]) for key, t in net.initial.b.tensors.items()}
    stacked = vmap(lambda b, u: StackedForward(net).of_one(w, b, x, y, u).logits)(b, uniform)
    torch.testing.assert_close(stacked, torch.stack(alone), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(alone[0], alone[1], atol=1e-3)
