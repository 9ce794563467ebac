"""The kernel for 2 x 2 max-pools: torch's bits for every sort of number, once and twice differentiated, and
nothing beside it. A ReLU behind a max-pool gives the bits of a ReLU before it, ties and all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from raffed.core.kernels import maxpool
from raffed.core.kernels.autograd import pool_first
from raffed.core.kernels.maxpool import MaxPool2d, choose_pools
from raffed.core.losses import cross_entropy
from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training.network import Network
from raffed.models import build
from tests.core.kernels.test_channel_padding import passed

KINDS = (torch.float32, torch.bfloat16)
needs_kernel = pytest.mark.skipif(not maxpool.built, reason="raffed was installed without a C compiler")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
