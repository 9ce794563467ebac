"""Stacked clients have the gradients, logits and buffers of each client alone, for every model."""

import copy
from collections.abc import Iterable

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


Both = tuple[object, list[object], State]


@pytest.fixture(
    scope="module"
)  # so that pytest puts the tests of one network together, and forgets it after them
def stacked_and_alone(request: pytest.FixtureRequest) -> Both:
    """Two clients in float64, so that what differs is an error and not the rounding of 50 layers."""
    name, train = request.param
    nets = [small(name, seed, **STILL.get(name, {})).train(train).double() for seed in (1, 2)]
    x = inputs(name, 2, 2 if name in HEAVY else 4).double()
    y = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])[:, : x.shape[1]]
    stateless = copy.deepcopy(nets[0])
    alone = [
        one_client(
            stateless,
            {k: p.detach() for k, p in n.named_parameters()},
            {k: b.clone() for k, b in n.named_buffers()},
            x[i],
            y[i],
        )
        for i, n in enumerate(nets)
    ]
    params, buffers = stack_module_state(nets)
    before = {key: buffer.clone() for key, buffer in buffers.items()}
    stacked = vmap(lambda p, b, x, y: one_client(stateless, p, b, x, y))(params, buffers, x, y)
    return stacked, alone, before


# Their blocks are those of vgg8, vgg8_bn, resnet18_gn and resnet8; B0 is stacked with its dropout below
MADE_OF_OTHERS = {"efficientnet_b0", "resnet18", "vgg11", "vgg11_bn", "vgg11_dropout", "vgg16_bn"}


def is_slow(name: str, train: bool) -> bool:
    """Deep networks that are made of the blocks of others, and all but one deep network in evaluation."""
    return name in MADE_OF_OTHERS or (name in HEAVY - {"vgg8_bn"} and not train)


def of_each(names: Iterable[str], *modes: bool) -> pytest.MarkDecorator:
    pairs = [
        pytest.param(
            (name, train),
            id=f"{name}-{'train' if train else 'eval'}",
            marks=[pytest.mark.slow] if is_slow(name, train) else [],
        )
        for name in names
        for train in modes
    ]
    return pytest.mark.parametrize("stacked_and_alone", pairs, indirect=True)


@of_each(MODELS, True, False)
def test_two_stacked_clients_have_the_gradients_logits_and_buffers_of_each_alone(
    stacked_and_alone: Both,
) -> None:
    (grads, (logits, buffers)), alone, _ = stacked_and_alone
    for i, (grads_i, (logits_i, buffers_i)) in enumerate(alone):
        torch.testing.assert_close(logits[i], logits_i, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close({k: g[i] for k, g in grads.items()}, grads_i, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close({k: b[i] for k, b in buffers.items()}, buffers_i, rtol=1e-9, atol=1e-12)
    assert any(g.abs().max() > 1e-4 for g in grads.values())


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


@of_each(BATCH_NORM, True)
def test_stacked_training_moves_every_statistic_and_counts_one_batch_for_each_client(
    stacked_and_alone: Both,
) -> None:
    (_, (_, after)), _, before = stacked_and_alone
    assert after
    for key in after:
        if key.endswith("num_batches_tracked"):
            assert after[key].tolist() == [1, 1]
        elif key.endswith(".key"):
            assert torch.equal(after[key], before[key])
        else:
            assert (after[key] != before[key]).any(dim=1).all()
            assert not torch.equal(after[key][0], after[key][1])


@of_each(BATCH_NORM, False)
def test_stacked_evaluation_leaves_every_buffer_alone(stacked_and_alone: Both) -> None:
    (_, (_, after)), _, before = stacked_and_alone
    assert all(torch.equal(after[key], before[key]) for key in before)
