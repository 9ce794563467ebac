"""The forward pass: two outputs, the batch axis, and the same numbers for stacked clients as for each
alone.
"""

import copy
from collections.abc import Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torchvision.ops import StochasticDepth

from raffed.core import seeds
from raffed.core.stacked.forward import StackedForward
from raffed.core.training.network import Network
from raffed.core.training.seeded_dropout import draw
from raffed.errors import UsageError
from raffed.models import MODELS, build
from raffed.models.dropout import Dropout
from raffed.models.net import GlobalMean, GridMean, Net

SMALLEST = {
    "cnn5": (1, 16, 16),
    "cnn_mcmahan": (1, 4, 4),
    "cnn_pfl": (1, 6, 6),
    "cnn_pfllib": (1, 16, 16),
    "efficientnet_b0": (3, 33, 33),
    "femnist_cnn": (1, 8, 8),
    "lenet": (1, 28, 28),
    "lenet_2d": (1, 28, 28),
    "lenet_authors": (1, 16, 16),
    "lenet_dlg": (1, 2, 2),
    "linear": (1, 2, 2),
    "mlp": (1, 2, 2),
    "mlp5": (1, 2, 2),
    "mlpnet": (1, 2, 2),
    "mlpnet_authors": (1, 2, 2),
    "mobilenet_v2": (1, 9, 9),
    "resnet18": (1, 9, 9),
    "resnet18_gn": (1, 8, 8),
    "resnet20": (1, 8, 8),
    "resnet56": (1, 8, 8),
    "resnet8": (1, 8, 8),
    "simplecnn": (1, 16, 16),
    "tfcnn": (1, 8, 8),
    "vgg11": (1, 32, 32),
    "vgg11_bn": (1, 32, 32),
    "vgg11_dropout": (1, 32, 32),
    "vgg16_bn": (1, 32, 32),
    "vgg8": (1, 32, 32),
    "vgg8_bn": (1, 32, 32),
    "wrn28": (1, 8, 8),
}
ARGS: dict[str, dict[str, object]] = {"mlpnet": {"hidden": (16, 8)}, "wrn28": {"widen": 1}}
BATCH_NORM = [
    "efficientnet_b0",
    "mobilenet_v2",
    "resnet18",
    "resnet20",
    "resnet56",
    "resnet8",
    "vgg11_bn",
    "vgg16_bn",
    "vgg8_bn",
    "wrn28",
]
SIGNED = {"cnn5", "lenet_2d", "linear", "mlp5"}  # the last layer before the head has no ReLU
# Network: dropouts, without B0's first branches, which are never dropped
DROPOUT = {
    "cnn_pfl": 2,
    "efficientnet_b0": 10,
    "vgg11_dropout": 2,
    "wrn28": 12,
}
HEAVY = {
    "efficientnet_b0",
    "mobilenet_v2",
    "resnet18",
    "resnet18_gn",
    "resnet56",
    "vgg11",
    "vgg11_bn",
    "vgg11_dropout",
    "vgg16_bn",
    "vgg8",
    "vgg8_bn",
    "wrn28",
}


STILL: dict[str, dict[str, float]] = {
    "efficientnet_b0": {"dropout": 0.0, "stochastic_depth": 0.0},
    "cnn_pfl": {"dropout": 0.0},
    "vgg11_dropout": {"dropout": 0.0},
    "wrn28": {"dropout": 0.0},
}


def small(name: str, seed: int = 0, **args: float) -> Net:
    return build(name, SMALLEST[name], 3, seed, **{**ARGS.get(name, {}), **args})


def inputs(name: str, *batch: int) -> Tensor:
    return torch.randn(*batch, *SMALLEST[name], generator=torch.Generator().manual_seed(5))


def test_there_is_a_smallest_shape_for_every_model() -> None:
    assert list(SMALLEST) == list(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_the_head_of_the_features_and_the_features_are_the_body_s(name: str) -> None:
    net, x = small(name).eval(), inputs(name, 2)
    logits, z = net(x)
    assert logits.shape == (2, 3)
    assert z.shape == (2, net.feature_dim)
    assert torch.equal(z, net.body(x))
    assert torch.equal(logits, net.head(net.body(x)))


@pytest.mark.parametrize("name", MODELS)
def test_features_are_taken_after_a_relu_or_sigmoid_but_for_the_signed_ones(name: str) -> None:
    z = small(name).eval()(inputs(name, 8))[1]
    assert (z.min() < 0) == (name in SIGNED)
    assert z.max() > 0 or name == "lenet_2d"


def test_lenet_2d_can_have_a_relu_on_its_two_features() -> None:
    with_relu, without = (build("lenet_2d", (1, 28, 28), 3, 0, relu=relu).eval() for relu in (True, False))
    x = inputs("lenet_2d", 8)
    assert torch.equal(with_relu(x)[1], without(x)[1].relu())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("train", [True, False])
def test_a_batch_of_one_keeps_its_axis(name: str, train: bool) -> None:
    net = small(name).train(train)
    logits, z = net(inputs(name, 1))
    assert logits.shape == (1, 3)
    assert z.shape == (1, net.feature_dim)


@pytest.mark.parametrize(
    ("name", "in_shape"),
    [(name, s) for name, info in MODELS.items() if name != "resnet18" for s in info.in_shapes],
)
def test_a_net_takes_the_shapes_it_lists(name: str, in_shape: tuple[int, int, int]) -> None:
    net = build(name, in_shape, 10, 0, **ARGS.get(name, {})).eval()
    batch = 1 if name in HEAVY else 2
    assert net(torch.zeros(batch, *in_shape))[1].shape == (batch, net.feature_dim)


@pytest.mark.parametrize(
    ("name", "in_shape"), [("simplecnn", (3, 64, 50)), ("tfcnn", (1, 28, 33)), ("resnet8", (2, 11, 9))]
)
def test_a_net_of_any_size_takes_sides_that_differ_and_do_not_divide(
    name: str, in_shape: tuple[int, int, int]
) -> None:
    net = build(name, in_shape, 10, 0)
    assert net(torch.zeros(2, *in_shape))[1].shape == (2, net.feature_dim)


@pytest.mark.parametrize("name", MODELS)
def test_a_forward_in_evaluation_does_not_depend_on_the_rest_of_the_batch_nor_change_its_input(
    name: str,
) -> None:
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


def test_a_28x28_image_and_its_zero_padding_to_32x32_have_the_same_lenet_features() -> None:
    small_net, large_net = build("lenet", (1, 28, 28), 10, 4), build("lenet", (1, 32, 32), 10, 4)
    x = inputs("lenet", 2)
    torch.testing.assert_close(small_net(x), large_net(F.pad(x, (2, 2, 2, 2))))


@pytest.mark.parametrize("size", [(14, 14), (4, 4), (5, 9)])
def test_grid_mean_averages_the_windows_of_adaptive_pooling(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(GridMean(4)(x), F.adaptive_avg_pool2d(x, 4))


def test_global_mean_of_a_known_map() -> None:
    x = torch.arange(8.0).reshape(1, 2, 2, 2)  # channel 0 holds 0..3, channel 1 holds 4..7
    assert GlobalMean()(x).tolist() == [[1.5, 5.5]]


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


@pytest.mark.parametrize("name", MODELS)
def test_a_step_along_the_gradient_lowers_the_loss(name: str) -> None:
    net, x = small(name).train(), inputs(name, 4)
    y = torch.tensor([0, 1, 2, 0])
    # 17 blocks of three BatchNorms each over 2x2 maps of four images curve the loss strongly
    rate = 1e-5 if name == "mobilenet_v2" else 1e-3 if name in HEAVY else 1e-2
    optimiser = torch.optim.SGD(net.parameters(), lr=rate)
    losses = []
    for _ in range(2):
        with seeds.forked(3):
            loss = F.cross_entropy(net(x)[0], y)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[1] < losses[0]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet", (1, 28, 28)), ("simplecnn", (1, 28, 28)), ("resnet18", (3, 9, 9)), ("mlp", (1, 8, 8))],
)
def test_moon_s_projection_is_behind_the_body_and_read_by_the_head(
    name: str, shape: tuple[int, int, int]
) -> None:
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


def test_a_hidden_width_without_a_projection_is_refused() -> None:
    with pytest.raises(UsageError, match="projection_hidden = 100 has no effect without a projection"):
        build("mlp", (1, 8, 8), 10, 3, projection_hidden=100)


def test_a_linear_classifier_scores_the_flattened_image_and_its_sigmoid_lies_between_0_and_1() -> None:
    plain, squashed = (build("linear", (1, 4, 4), 3, 5, sigmoid=on) for on in (False, True))
    x = 20 * torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    wanted = x.flatten(1) @ plain.head.weight.T + plain.head.bias
    torch.testing.assert_close(plain(x)[0], wanted)
    torch.testing.assert_close(squashed(x)[0], 1 / (1 + torch.exp(-wanted)))
    assert torch.equal(plain(x)[1], x.flatten(1))


def test_a_run_with_the_sigmoid_trains_through_it() -> None:
    """∂/∂a of the cross-entropy at sigmoid(a) is (softmax(s) − y) s (1 − s), s the sigmoid."""
    net = Network(build("linear", (1, 4, 4), 3, 5, sigmoid=True, head_bias=False))
    x, y = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 1])
    f = net.forward(x, y)
    (found,) = torch.autograd.grad(F.cross_entropy(f.logits, y), list(net.leaves("all").values()))
    s = torch.sigmoid(x.flatten(1) @ net.initial.w["head.weight"].T)
    at_scores = (s.softmax(-1) - F.one_hot(y, 3)) / 4 * s * (1 - s)
    torch.testing.assert_close(found, at_scores.T @ x.flatten(1))


@pytest.mark.parametrize(("padding", "maps"), [("same", (28, 14, 14, 7)), ("pools", (26, 14, 12, 7))])
def test_mcmahan_s_maps_end_at_7x7_either_way(padding: str, maps: tuple[int, ...]) -> None:
    net, sides = build("cnn_mcmahan", (1, 28, 28), 10, 0, padding=padding), []
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            layer.register_forward_hook(lambda _, __, out: sides.append(out.shape[-1]))
    net(torch.zeros(1, 1, 28, 28))
    assert tuple(sides) == maps


def test_group_norm_scores_an_image_alone_as_in_any_batch_also_while_training() -> None:
    net, x = build("resnet18_gn", (1, 8, 8), 3, 0).train(), inputs("resnet18_gn", 3)
    torch.testing.assert_close(net(x)[0][:1], net(x[:1])[0], rtol=1e-4, atol=1e-5)
    norms = [layer for layer in net.modules() if isinstance(layer, nn.GroupNorm)]
    assert {layer.num_groups for layer in norms} == {2}
    assert len(norms) == 20  # as many as resnet18 has BatchNorms


def test_mobilenet_v2_halves_the_map_three_times() -> None:
    """Strides 1, 1, 2, 2, 1, 2, 1 of its seven stages, and a stem of stride 1: 32 becomes 4."""
    net, sides = build("mobilenet_v2", (3, 32, 32), 10, 0).eval(), []
    for i in range(1, 8):
        stage = net.body.get_submodule(f"stage{i}")
        stage.register_forward_hook(lambda _, __, out: sides.append(out.shape[-1]))
    net(torch.zeros(1, 3, 32, 32))
    assert sides == [32, 32, 16, 8, 8, 4, 4]
