"""Faster layers in a network: filled channels, max-pools, and the one switch for all of them."""

from __future__ import annotations

import copy
import inspect
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

import raffed.core.kernels.convolution
import raffed.core.kernels.maxpool  # noqa: F401 (it declares operations)
from raffed.core.kernels import maxpool, optimise
from raffed.core.kernels.autograd import Operation, pool_first
from raffed.core.kernels.convolution import VECTOR, FilledConv2d, fill_channels
from raffed.core.kernels.maxpool import MaxPool2d, choose_pools
from raffed.core.losses import cross_entropy
from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training.network import Network
from raffed.models import MODELS, build

# Channels of zeros between convolutions change no output and no gradient, and parameters know nothing of
# them.

FORMATS = [torch.contiguous_format, torch.channels_last]


def chain(*channels: int, bias: bool = True) -> nn.Sequential:
    """Convolutions with these channels, padded so that the pools' windows see borders, ReLU and max-pool
    behind each.
    """
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, bias=bias),
            nn.MaxPool2d(3, 2, padding=1),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers).double()


def passed(layers: nn.Module, x: Tensor) -> list[Tensor]:
    """The output for x, and the gradients by x and by every parameter of a sum with unequal weights."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layers(x)
    weights = torch.linspace(1.0, 2.0, y.numel(), dtype=y.dtype).view_as(y)
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *layers.parameters()])]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("channels", [(1, 6, 16), (3, 1, 2), (2, 5, 7, 3)])
def test_outputs_and_gradients_are_those_of_the_plain_layers(
    channels: tuple[int, ...], bias: bool, format: torch.memory_format
) -> None:
    plain, filled = chain(*channels, bias=bias), chain(*channels, bias=bias)
    assert fill_channels(filled) == len(channels) - 2
    g = torch.Generator().manual_seed(1)
    x = torch.randn(4, channels[0], 9, 9, dtype=torch.float64, generator=g).to(memory_format=format)
    for a, b in zip(passed(plain, x), passed(filled, x), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_what_may_not_be_filled_stays() -> None:
    hooked, behind = chain(1, 6, 16), chain(1, 6, 16)
    hooked[0].register_forward_hook(lambda *_: None)
    behind[1].register_forward_hook(lambda *_: None)
    first, second = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 16, 3)
    for layers in (
        hooked,
        behind,
        chain(1, VECTOR, 16),
        chain(1, 6),
        nn.Sequential(first, nn.BatchNorm2d(6), second),
        nn.Sequential(first, nn.Sigmoid(), second),  # of 0 it makes 1/2
        nn.Sequential(first, nn.Dropout(), second),  # would draw numbers for the zeros
        nn.Sequential(nn.Conv2d(2, 6, 3, groups=2), second),
        nn.Sequential(first, nn.Conv2d(6, 12, 3, groups=6)),
        nn.Sequential(first, nn.Flatten(1), nn.Linear(6, 2)),
    ):
        assert fill_channels(layers) == 0
        assert not any(isinstance(layer, FilledConv2d) for layer in layers)


# The kernel for 2 x 2 max-pools: torch's bits for every sort of number, once and twice differentiated, and
# nothing beside it. A ReLU behind a max-pool gives the bits of a ReLU before it, ties and all.

KINDS = (torch.float32, torch.bfloat16)
needs_kernel = pytest.mark.skipif(not maxpool.built, reason="raffed was installed without a C compiler")


def drawn(shape: tuple[int, ...], kind: torch.dtype, levels: int = 5) -> Tensor:
    """Whole numbers around 0, channels last: few levels, so that most windows have ties and some nothing
    positive.
    """
    x = torch.randint(0, levels, shape, generator=torch.Generator().manual_seed(sum(shape))) - levels // 2
    return x.to(kind).to(memory_format=torch.channels_last)


def layer(relu: bool) -> MaxPool2d:
    made = MaxPool2d(2)
    made.relu = relu
    return made


def by_torch(x: Tensor, relu: bool) -> Tensor:
    y = F.max_pool2d(x, 2)
    return torch.relu(y) if relu else y


def bits(x: Tensor) -> Tensor:
    """As integers, every NaN as one: signs of zeros count, what a NaN carries does not."""
    whole = x.detach().view(torch.int32 if x.dtype == torch.float32 else torch.int16)
    return torch.where(x.isnan(), torch.iinfo(whole.dtype).max, whole)


def by_kernel(y: Tensor) -> bool:
    return y.grad_fn is not None and "_Pool" in y.grad_fn.name()


def same_bits(x: Tensor, relu: bool) -> None:
    """Values and gradients of both, with an upstream gradient that has no two numbers alike."""
    found = []
    for pool in (layer(relu), lambda t: by_torch(t, relu)):
        leaf = x.detach().requires_grad_()
        y = pool(leaf)
        g = torch.linspace(-1.0, 1.0, y.numel()).view_as(y).to(x.dtype)
        found.append((y, torch.autograd.grad(y, leaf, g)[0]))
    assert by_kernel(found[0][0])
    for ours, torchs in zip(*found, strict=True):
        assert torch.equal(bits(ours), bits(torchs))
        assert ours.is_contiguous(memory_format=torch.channels_last)


@needs_kernel
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [8, 16, 24, 32, 40, 48, 64, 96])
@pytest.mark.parametrize("size", [(2, 2), (9, 6), (4, 7), (11, 13)])
def test_widths_and_odd_sizes(size: tuple[int, int], channels: int, kind: torch.dtype, relu: bool) -> None:
    """A last row and column that fill no window have no part in the output, and gradient 0."""
    same_bits(drawn((3, channels, *size), kind), relu)


@needs_kernel
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_every_sort(kind: torch.dtype, relu: bool) -> None:
    """Both zeros, the smallest, the largest, infinities and NaNs of both signs, each beside each in each
    place of a window.
    """
    # As bfloat16, the front half of float32
    patterns = torch.tensor([0x0000, 0x0001, 0x0080, 0x3F80, 0x7F7F, 0x7F80, 0x7FC0])
    signed = torch.cat([patterns, patterns - 0x8000]).to(torch.int16)
    values = signed.view(kind) if kind == torch.bfloat16 else (signed.to(torch.int32) << 16).view(kind)
    assert values.isnan().sum() == values.isinf().sum() == (values == 0).sum() == 2
    quads = torch.cartesian_prod(*[values] * 4)  # [38416, 4]
    quads = torch.cat([quads, quads[: -len(quads) % 8]]).view(-1, 8, 2, 2)
    same_bits(quads.to(memory_format=torch.channels_last), relu)


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_beside_the_output(kind: torch.dtype) -> None:
    """The kernel is given addresses: 64 numbers before and behind each output must be as they were."""
    n, c, h, w = 2, 24, 5, 7
    x = drawn((n, c, h, w), kind)
    sizes = {"y": (n * c * 2 * 3, kind), "place": (n * c * 2 * 3, torch.uint8), "back": (n * c * h * w, kind)}
    wide = {name: torch.full((size + 128,), 77, dtype=dtype) for name, (size, dtype) in sizes.items()}
    inner = {name: t[64:-64] for name, t in wide.items()}
    brain = kind == torch.bfloat16
    maxpool.compiled.forward(
        x.data_ptr(), inner["y"].data_ptr(), inner["place"].data_ptr(), n, h, w, c, brain, True
    )
    maxpool.compiled.backward(
        inner["y"].data_ptr(), inner["place"].data_ptr(), inner["back"].data_ptr(), n, h, w, c, brain
    )
    for name, t in wide.items():
        assert torch.all(t[:64] == 77), name
        assert torch.all(t[-64:] == 77), name
        assert not torch.any(inner[name] == 77), name


@needs_kernel
@pytest.mark.parametrize("relu", [False, True])
def test_gradients_can_be_differentiated_again(relu: bool) -> None:
    """∂/∂x of ‖∂ Σ w y³ / ∂x‖², as Per-FedAvg and gradient matching ask, against torch's own."""
    found = []
    for pool in (layer(relu), lambda t: by_torch(t, relu)):
        x = drawn((2, 8, 5, 6), torch.float32, 100).mul_(0.1).requires_grad_()
        y = pool(x)
        (first,) = torch.autograd.grad(
            (y**3 * torch.linspace(1.0, 2.0, y.numel()).view_as(y)).sum(), x, create_graph=True
        )
        (second,) = torch.autograd.grad((first**2).sum(), x)
        assert second.abs().sum() > 0
        found.append(second)
    assert torch.equal(*found)


@pytest.mark.parametrize("relu", [False, True])
def test_what_the_kernel_does_not_take_is_torch_s(relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    last = drawn((2, 8, 6, 6), torch.float32)
    cases = {
        "channels first": last.contiguous(),
        "six channels": drawn((2, 6, 6, 6), torch.float32),
        "double": last.double(),
        "one image": last[0],
        "part of a row": drawn((2, 8, 6, 8), torch.float32)[..., :6],
    }
    for name, x in cases.items():
        y = layer(relu)(x.detach().requires_grad_())
        assert not by_kernel(y), name
        assert torch.equal(y, by_torch(x, relu)), name
    torch.set_num_threads(2)  # torch's kernel shares the work, ours does not
    assert not by_kernel(layer(relu)(last.detach().requires_grad_()))
    torch.set_num_threads(1)
    monkeypatch.setattr(maxpool, "built", False)
    y = layer(relu)(last.detach().requires_grad_())
    assert not by_kernel(y)
    assert torch.equal(y, by_torch(last, relu))


def test_stacks_are_torch_s_and_have_the_same_bits() -> None:
    """vmap and torch.func.grad over clients equal one client at a time by the kernel."""
    x = torch.stack([drawn((2, 8, 4, 6), torch.float32, levels) for levels in (3, 100)])
    weights = torch.linspace(1.0, 2.0, 2 * 8 * 2 * 3).view(2, 8, 2, 3)

    def total(x: Tensor) -> Tensor:
        return (layer(True)(x) * weights).sum()

    stacked = vmap(grad(total))(x)
    for one, of_stack in zip(x, stacked, strict=True):
        leaf = one.to(memory_format=torch.channels_last).requires_grad_()
        assert torch.equal(torch.autograd.grad(total(leaf), leaf)[0], of_stack)


def test_which_pools_are_chosen() -> None:
    other = [
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, stride=1),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d((2, 3)),
        nn.AvgPool2d(2),
    ]
    other += [
        nn.MaxPool2d(2, return_indices=True),
        nn.MaxPool2d(2, dilation=2),
        nn.MaxPool2d(2, ceil_mode=True),
    ]
    hooked = nn.MaxPool2d(2)
    hooked.register_forward_hook(lambda *_: None)
    for pool in [*other, hooked]:
        assert choose_pools(nn.Sequential(pool)) == 0
    layers = nn.Sequential(nn.MaxPool2d((2, 2)), nn.ReLU(), nn.MaxPool2d(2), nn.Tanh(), nn.ReLU())
    assert choose_pools(layers) == 2
    assert [type(m) for m in layers] == [MaxPool2d, nn.Identity, MaxPool2d, nn.Tanh, nn.ReLU]
    assert [layers[0].relu, layers[2].relu] == [True, False]
    assert choose_pools(layers) == 0


@needs_kernel
@pytest.mark.parametrize("own", [False, True], ids=["torch's convolutions", "compiled ones"])
@pytest.mark.parametrize(("name", "shape"), [("lenet", (1, 28, 28)), ("tfcnn", (3, 32, 32))])
def test_a_stack_trains_to_the_same_bits_with_and_without(
    name: str, shape: tuple[int, int, int], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network(build(name, shape, 10, 0), convolutions=own)
    forward, k = StackedForward(net), 3
    w = {n: torch.stack([t] * k).requires_grad_() for n, t in net.initial.w.tensors.items()}
    x = net.arranged(torch.randn(2 * k, *shape, generator=torch.Generator().manual_seed(0)))
    y = torch.arange(2 * k).view(k, 2)

    def gradients() -> tuple[Tensor, ...]:
        def loss(w: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(forward.of_one(w, {}, x, y, []).logits, y)

        losses = vmap(loss)(w, x.unflatten(0, (k, 2)), y)
        return torch.autograd.grad(losses.sum(), list(w.values()))

    with_kernel = gradients()
    monkeypatch.setattr(maxpool, "built", False)
    for one, other in zip(with_kernel, gradients(), strict=True):
        assert torch.equal(one, other)


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("levels", [3, 1000])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_the_swap_keeps_every_bit(pool: dict[str, int], levels: int, format: torch.memory_format) -> None:
    """`levels` 3: the values -1, 0 and 1 alone, so that nearly every window has ties, and some are all
    zero or negative.
    """
    g = torch.Generator().manual_seed(0)
    x = (torch.randint(0, levels, (4, 6, 9, 9), generator=g).float() - levels // 2).contiguous(
        memory_format=format
    )
    plain, swapped = (nn.Sequential(nn.ReLU(), nn.MaxPool2d(**pool)) for _ in range(2))  # type: ignore[arg-type]
    assert pool_first(swapped) == 1
    assert isinstance(swapped[0], nn.MaxPool2d)
    for a, b in zip(passed(plain, x), passed(swapped, x), strict=True):
        assert torch.equal(a, b)


# One function puts the faster layers into a network, and one switch leaves all of them out. An operation
# costs little to call, because torch need not bind its arguments. So nothing may need it.

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


NETWORKS = {
    "lenet": {},
    "simplecnn": {},
    "tfcnn": {},
    "vgg11_bn": {},
    "cnn_pfllib": {},
    "cnn_mcmahan": {"padding": "pools"},
    "mlpnet": {},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_replaced_layers_compute_what_plain_ones_do_with_the_same_parameters(name: str) -> None:
    shape = MODELS[name].in_shapes[0]
    module = build(name, shape, 10, 0, **NETWORKS[name])
    replaced, before = copy.deepcopy(module).eval(), list(module.state_dict())
    parameters = dict(replaced.named_parameters())
    optimise(replaced)
    assert list(replaced.state_dict()) == before
    assert all(parameters[key] is one for key, one in replaced.named_parameters())
    assert not any(layer.training for layer in replaced.modules() if list(layer.parameters()))
    kinds = [type(layer) for layer in replaced.modules()]
    optimise(replaced)
    assert [type(layer) for layer in replaced.modules()] == kinds  # nothing is left to do
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    ours, plain = Network(copy.deepcopy(module)), Network(module, kernels=False)
    for mine, theirs in zip(ours.apply(ours.initial, x), plain.apply(plain.initial, x), strict=True):
        torch.testing.assert_close(mine, theirs)


ALL = Operation.__subclasses__()


@pytest.mark.parametrize("operation", ALL, ids=lambda one: one.__name__)
def test_no_argument_of_an_operation_has_a_default_or_needs_its_name(operation: type[Operation]) -> None:
    """A default would be missing among the inputs of `setup_context`."""
    code = operation.forward.__code__
    assert code.co_argcount
    assert not code.co_kwonlyargcount
    assert not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    assert not operation.forward.__defaults__


@pytest.mark.parametrize("operation", ALL, ids=lambda one: one.__name__)
def test_a_call_with_too_few_arguments_is_refused(operation: type[Operation]) -> None:
    with pytest.raises(TypeError, match=r"missing .* required positional argument"):
        operation.of(torch.ones(1, 8, 4, 4))
