"""raffed's networks: what `build` promises, the forward pass, dropout from a stream given from outside, and
stacks of clients with the gradients, logits and buffers of each client alone.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torchvision.ops import StochasticDepth

from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training import seeded_dropout
from raffed.core.training.network import Network
from raffed.core.training.seeded_dropout import draw
from raffed.errors import UsageError
from raffed.models import MODELS, build
from raffed.models.net import Dropout, GridMean, Net
from tests.models.small_models import BATCH_NORM, DROPOUT, HEAVY, SIGNED, STILL, inputs, small
from tests.params import one_in
from tests.tiny import same_bits


@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_the_seed_alone_decides_the_weights_whose_names_start_with_body_or_head(name: str) -> None:
    """Whatever was drawn before. torch's global generator stays where it was."""
    net = small(name, 7)
    one = net.state_dict()
    assert all(key.startswith(("body.", "head.")) for key in one)
    assert [key for key in one if key.startswith("head.")] == [f"head.{key}" for key in net.head.state_dict()]
    assert any(key.startswith("body.") for key, _ in net.named_parameters()) == (name != "linear")
    torch.rand(13)
    before = torch.get_rng_state()
    again, other = (small(name, seed).state_dict() for seed in (7, 8))
    assert torch.equal(before, torch.get_rng_state())
    assert same_bits(one, again)
    matrices = [key for key in one if one[key].dim() > 1]
    assert len(matrices) >= (1 if name == "linear" else 2)
    assert not any(torch.equal(one[key], other[key]) for key in matrices)


@pytest.mark.parametrize("name", MODELS)
def test_an_entry_describes_itself_and_its_factory_bears_its_name(name: str) -> None:
    info = MODELS[name]
    assert info.name == name == info.load().__name__
    assert all((info.layers, info.source, info.in_shapes))
    assert "\n" not in info.layers
    for in_shape in info.in_shapes:
        build(name, in_shape, 10, 0)


@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_a_factory_that_is_called_directly_checks_as_build_does(name: str) -> None:
    factory = MODELS[name].load()
    with pytest.raises(UsageError, match=f"{name}: head_bias = 'x' is a str, but must be a bool"):
        factory(MODELS[name].in_shapes[0], 10, head_bias="x")
    with pytest.raises(UsageError, match=f"{name}: num_classes = 0 is below 1"):
        factory(MODELS[name].in_shapes[0], 0)


REFUSED = [  # the smallest shape of each network, one smaller on a side
    ("lenet", (3, 64, 64)),
    ("simplecnn", (1, 16, 15)),
    ("resnet8", (1, 7, 8)),
    ("wrn28", (3, 8, 7)),
    ("lenet_dlg", (3, 1, 2)),
    ("efficientnet_b0", (3, 32, 33)),
    ("efficientnet_b0", (1, 64, 64)),  # it takes colour alone
    ("cnn_pfl", (1, 5, 6)),
    ("mobilenet_v2", (3, 9, 8)),
    *[(name, (3, 31, 32)) for name in ("vgg8", "vgg8_bn", "vgg11_bn", "vgg11_dropout", "vgg16_bn")],
]


@pytest.mark.parametrize(("name", "in_shape"), REFUSED)
def test_a_shape_that_a_net_cannot_take_is_refused_with_net_shape_and_what_it_takes(name, in_shape) -> None:
    given = "x".join(map(str, in_shape))
    refusal = rf"{name.removesuffix('_2d')} cannot take {given} inputs .*; it takes [K3]x"
    with pytest.raises(UsageError, match=refusal):
        build(name, in_shape, 10, 0)


def test_a_stem_of_stride_2_halves_every_map_and_changes_no_weight() -> None:
    plain, halved = (build("resnet8", (1, 28, 28), 10, 5, stem_stride=stride) for stride in (1, 2))
    assert [t.shape for t in plain.parameters()] == [t.shape for t in halved.parameters()]
    nets = {net: list(net.body.children())[-2:-1] for net in (plain, halved)}  # the last before the pool
    assert [sides(net, last, 1, 28) for net, last in nets.items()] == [[7], [4]]
    with pytest.raises(UsageError, match="at least 16"):
        build("resnet8", (1, 14, 28), 10, 0, stem_stride=2)


@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_logits_are_the_head_of_the_features_which_a_relu_or_sigmoid_makes(name: str) -> None:
    net, x = small(name).eval(), inputs(name, 8)
    logits, z = net(x)
    assert logits.shape == (8, 3)
    assert z.shape == (8, net.feature_dim)
    assert torch.equal(z, net.body(x))
    assert torch.equal(logits, net.head(z))
    assert (z.min() < 0) == (name in SIGNED)
    assert z.max() > 0 or name == "lenet_2d"


@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_evaluation_does_not_depend_on_the_rest_of_the_batch_nor_change_its_input(name: str) -> None:
    net, x = small(name).eval(), inputs(name, 3)
    before = x.clone()
    together = net(x)[0]
    assert torch.equal(x, before)
    torch.testing.assert_close(together[1:2], net(x[1:2])[0], rtol=1e-4, atol=1e-5)


def test_no_model_works_in_place_and_only_three_have_dropout_which_is_raffed_s() -> None:
    for name in MODELS:
        modules = list(small(name).modules())
        dropouts = [m for m in modules if isinstance(m, nn.modules.dropout._DropoutNd)]
        assert len(dropouts) == DROPOUT.get(name, 0)
        assert all(type(m) is Dropout for m in dropouts)
        assert not [m for m in modules if getattr(m, "inplace", False)]
        assert not [m for m in modules if isinstance(m, StochasticDepth)]


@pytest.mark.parametrize("size", [(14, 14), (4, 4), (5, 9)])
def test_grid_mean_averages_the_windows_of_adaptive_pooling(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(GridMean(4)(x), F.adaptive_avg_pool2d(x, 4))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 28, 28)), ("simplecnn", (1, 28, 28)), ("resnet18", (3, 9, 9)), ("mlp", (1, 8, 8))],
)
def test_moon_s_projection_is_between_body_and_head(name: str, shape: tuple[int, int, int]) -> None:
    """docs/papers/baselines.md, MOON: z = W₂ ReLU(W₁ h + b₁) + b₂, logits = head(z), h what the network's
    z is without it.
    """
    plain, net = build(name, shape, 10, 3).eval(), build(name, shape, 10, 4, projection=256).eval()
    plain.body.load_state_dict(net.body.encoder.state_dict())
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    h, p = plain(x)[1], net.body.projection
    logits, z = net(x)
    wanted = (h @ p.fc1.weight.T + p.fc1.bias).clamp(min=0) @ p.fc2.weight.T + p.fc2.bias
    torch.testing.assert_close(z, wanted)
    assert z.shape == (4, 256)
    torch.testing.assert_close(logits, net.head(wanted))


def test_a_linear_classifier_scores_the_flattened_image_and_its_sigmoid_lies_between_0_and_1() -> None:
    plain, squashed = (build("linear", (1, 4, 4), 3, 5, sigmoid=on) for on in (False, True))
    x = 20 * torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    wanted = x.flatten(1) @ plain.head.weight.T + plain.head.bias
    torch.testing.assert_close(plain(x)[0], wanted)
    torch.testing.assert_close(squashed(x)[0], 1 / (1 + torch.exp(-wanted)))
    assert torch.equal(plain(x)[1], x.flatten(1))


def sides(net: Net, layers: Iterable[nn.Module], channels: int, side: int) -> list[int]:
    """The side of the map that each layer makes of an image of this side, in the order of the pass."""
    found: list[int] = []
    for layer in layers:
        layer.register_forward_hook(lambda _, __, out: found.append(out.shape[-1]))
    net(torch.zeros(2, channels, side, side))
    return found


@pytest.mark.parametrize(
    ("padding", "maps"), [("same", [28, 14, 14, 7]), ("pools", [26, 14, 12, 7])], ids=["same", "pools"]
)
def test_mcmahan_s_maps_end_at_7x7_either_way(padding: str, maps: list[int]) -> None:
    net = build("cnn_mcmahan", (1, 28, 28), 10, 0, padding=padding)
    assert sides(net, [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.MaxPool2d)], 1, 28) == maps


def test_group_norm_scores_an_image_alone_as_in_any_batch_also_while_training() -> None:
    net, x = build("resnet18_gn", (1, 8, 8), 3, 0).train(), inputs("resnet18_gn", 3)
    torch.testing.assert_close(net(x)[0][:1], net(x[:1])[0], rtol=1e-4, atol=1e-5)
    norms = [layer for layer in net.modules() if isinstance(layer, nn.GroupNorm)]
    assert {layer.num_groups for layer in norms} == {2}
    assert len(norms) == 20  # as many as resnet18 has BatchNorms


def test_mobilenet_v2_halves_the_map_three_times() -> None:
    """Strides 1, 1, 2, 2, 1, 2, 1 of its seven stages, and a stem of stride 1: 32 becomes 4."""
    net = build("mobilenet_v2", (3, 32, 32), 10, 0).eval()
    stages = [net.body.get_submodule(f"stage{number}") for number in range(1, 8)]
    assert sides(net, stages, 3, 32) == [32, 32, 16, 8, 8, 4, 4]


def in_kernel(layer: nn.Module, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """What the layer makes of x in a network of the kernel: the features of an identity body, linear head
    ignored.
    """
    body = nn.Sequential(OrderedDict(fc=nn.Linear(1, 1), drop=layer))
    net = Network(Net(body, nn.Linear(1, 1)))
    net.noise.generator = torch.Generator().manual_seed(seed)
    stream = net.module.get_submodule("body.drop")
    assert isinstance(stream, seeded_dropout.StreamDropout)
    out: torch.Tensor = stream(x)
    return out


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("kernel", [False, True])
def test_a_share_p_becomes_zero_and_the_rest_is_divided_by_1_minus_p(p: float, kernel: bool) -> None:
    """Binomial(10^6, p): five standard deviations."""
    x = torch.ones(1000, 1000)
    out = in_kernel(Dropout(p), x) if kernel else Dropout(p)(x)
    assert out.unique().tolist() == [0.0, pytest.approx(1 / (1 - p))]
    share = (out == 0).double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / 1e6)


@pytest.mark.parametrize("kernel", [False, True])
def test_by_rows_a_sample_is_kept_whole_or_dropped_whole(kernel: bool) -> None:
    x, layer = torch.ones(1000, 3, 2, 2), Dropout(0.5, rows=True)
    out = (in_kernel(layer, x) if kernel else layer(x)).flatten(1)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert (out == out[:, :1]).all()
    assert abs((out[:, 0] == 0).sum().item() - 500) < 5 * math.sqrt(250)


@pytest.mark.parametrize("kernel", [False, True])
def test_a_dropped_element_has_no_gradient_and_no_nan_passes_through_it(kernel: bool) -> None:
    x = torch.full((100,), 1.0, requires_grad=True)
    out = in_kernel(Dropout(0.5), x) if kernel else Dropout(0.5)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    if kernel:
        dropped = in_kernel(Dropout(0.5), torch.full((100,), float("nan")))
        assert torch.equal(dropped == 0, out == 0)


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.5), nn.Dropout(1.0)])
def test_a_dropout_that_is_not_to_zero_or_keeps_nothing_is_refused_by_the_kernel(layer: nn.Module) -> None:
    with pytest.raises(TypeError, match="must be a dropout to zero"):
        Network(Net(nn.Sequential(nn.Linear(4, 3), layer), nn.Linear(3, 2)))


def test_wrn28_drops_three_tenths_between_the_two_convolutions_of_each_of_its_twelve_blocks() -> None:
    """docs/papers/fedmr.md §5: dropout 0.3; a block is norm1, conv1, dropout, norm2, conv2 in the order
    of its forward pass.
    """
    layers = [m for m in build("wrn28", (3, 32, 32), 100, 0).modules() if isinstance(m, Dropout)]
    assert [layer.p for layer in layers] == [0.3] * 12
    net, seen = build("wrn28", (3, 8, 8), 100, 0, widen=1), list[str]()
    for name, layer in net.named_modules():
        if name.rpartition(".")[2] in ("conv1", "dropout", "norm2", "conv2"):
            layer.register_forward_hook(lambda *_, name=name: seen.append(name))
    net(torch.zeros(2, 3, 8, 8))
    blocks = [f"body.stage{stage}.{block}" for stage in (1, 2, 3) for block in range(4)]
    assert seen == [
        f"{block}.{layer}" for block in blocks for layer in ("conv1", "dropout", "norm2", "conv2")
    ]


@pytest.mark.parametrize("layer", [nn.LSTM(4, 4, 2, dropout=0.1), nn.MultiheadAttention(4, 2, dropout=0.1)])
def test_a_dropout_inside_another_layer_is_refused(layer: nn.Module) -> None:
    """It would draw from torch's global generator."""
    with pytest.raises(UsageError, match=r"body\.0: the dropout = 0\.1 inside"):
        Network(Net(nn.Sequential(layer), nn.Linear(4, 3)))


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


def marks(name: str, train: bool) -> list[pytest.MarkDecorator]:
    """Slow are deep networks that are made of the blocks of others, and all but one of the deep networks in
    evaluation. `make test` has one deep network in training.
    """
    if name in MADE_OF_OTHERS or (name in HEAVY - {"vgg8_bn"} and not train):
        return [pytest.mark.slow]
    return [pytest.mark.more] if name in HEAVY - {"vgg8_bn"} else []


@pytest.mark.parametrize(
    ("name", "train"),
    [pytest.param(name, train, marks=marks(name, train)) for name in MODELS for train in (True, False)],
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
