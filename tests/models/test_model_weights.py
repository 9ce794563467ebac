"""Counts of parameters and buffers, and initial weights: docs/papers, or arithmetic written here. Features of
one length or after BatchNorm, and heads drawn as frames, for every network.
"""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from raffed.errors import UsageError
from raffed.models import MODELS, build
from raffed.models.last_layers import (
    NORM,
    ZEROS,
    FeatureNorm,
    UnitFeatures,
    orthogonal,
    simplex_etf,
    sparse_etf,
)
from raffed.models.mobilenet import STAGES
from raffed.models.net import Net
from raffed.runtime.initial_weights import plain_module, start_from
from tests.models.small_models import ARGS, small
from tests.params import one_in


def conv(k_in: int, k_out: int, side: int, bias: bool = True) -> int:
    return k_in * k_out * side * side + (k_out if bias else 0)


def linear(width_in: int, width_out: int, bias: bool = True) -> int:
    return width_in * width_out + (width_out if bias else 0)


def resnet8_by_hand(channels: int) -> int:
    stem = conv(channels, 16, 3, False) + 2 * 16
    stage1 = 2 * conv(16, 16, 3, False) + 2 * 2 * 16
    stage2 = conv(16, 32, 3, False) + conv(32, 32, 3, False) + conv(16, 32, 1, False) + 3 * 2 * 32
    stage3 = conv(32, 64, 3, False) + conv(64, 64, 3, False) + conv(32, 64, 1, False) + 3 * 2 * 64
    return stem + stage1 + stage2 + stage3 + linear(64, 10)


def moon_s(width: int, bias: bool) -> int:
    """The projection of 256 and the classifier of 10 behind it."""
    return linear(width, width) + linear(width, 256) + linear(256, 10, bias)


MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
CNN5 = 307_192 + linear(64, 64) + linear(64, 256) + linear(256, 10)
MLP5 = 533_248 + 2 * linear(256, 256) + linear(256, 10)
VICTIM = conv(3, 12, 5) + 2 * conv(12, 12, 5)
VICTIM_3 = VICTIM + linear(768, 256) + linear(256, 128) + linear(128, 100)
WRN28, B0 = 36_546_980, 4_832_516
# FedVLS's code, MOON: 1280, 640 ReLU, 256, 10
MOBILE_MOON = 2_296_922 - linear(1280, 10) + linear(1280, 640) + linear(640, 256) + linear(256, 10)
COUNTS = [  # model, input, C, keywords, parameters, feature width; page of docs/papers
    ("mlpnet", (1, 32, 32), 10, {}, 792_576, 512),  # docs/papers/map.md §E3
    ("mlpnet_authors", MNIST, 10, {}, 1_985_920, 128),  # docs/papers/map.md §E3 [C]
    ("mlpnet", MNIST, 10, {"head_bias": True}, 669_706, 512),  # benchmarks W1
    ("lenet", (1, 32, 32), 10, {}, 61_696, 84),  # docs/papers/map.md §E3
    ("lenet_authors", (1, 32, 32), 10, {}, 10_832, 400),  # docs/papers/map.md §E3 [C]
    ("mlp", (1, 8, 8), 10, {}, 4_810 + linear(64, 64), 64),
    ("tfcnn", CIFAR, 10, {}, 66_560, 1024),  # docs/papers/map.md §E3
    ("femnist_cnn", MNIST, 62, {}, 115_584, 1024),  # docs/papers/map.md §E3
    ("simplecnn", CIFAR, 10, {}, 62_006, 84),  # docs/papers/fedmr.md §5
    ("resnet18", CIFAR, 10, {}, 11_173_962, 512),  # docs/papers/fedmr.md §4
    ("resnet20", CIFAR, 10, {}, 272_464, 64),  # docs/papers/map.md §E3, from here
    ("resnet56", CIFAR, 10, {}, 855_760, 64),
    ("vgg8", CIFAR, 10, {}, 3_915_904, 512),
    ("vgg8_bn", CIFAR, 100, {}, 3_964_928, 512),
    ("vgg11", CIFAR, 100, {}, 9_271_680, 512),
    ("vgg11_bn", CIFAR, 10, {}, 9_231_104, 512),
    ("vgg16_bn", CIFAR, 100, {}, 14_774_336, 512),  # to here
    ("lenet_2d", (1, 32, 32), 10, {}, 61_696 - 840 + linear(84, 2) + 2 * 10, 2),
    ("wrn28", CIFAR, 100, {}, WRN28, 640),  # docs/papers/fedmr.md §4
    ("efficientnet_b0", (3, 200, 200), 8, {}, B0, 640),  # docs/papers/fedmr.md §4
    ("cnn5", CIFAR, 10, {}, CNN5, 256),  # docs/papers/mpfedcon.md §1
    ("mlp5", MNIST, 10, {}, MLP5, 256),  # docs/papers/mpfedcon.md §1
    ("lenet_dlg", CIFAR, 10, {}, VICTIM + linear(768, 10), 768),  # docs/papers/mpfedcon.md §5.2
    ("lenet_dlg", CIFAR, 100, {"fc_layers": 3}, VICTIM_3, 128),
    *(  # docs/papers/baselines.md, MOON: its official head, Linear, ReLU, Linear, read by the classifier
        (name, shape, 10, {"projection": 256}, plain - linear(width, 10, bias) + moon_s(width, bias), 256)
        for name, shape, plain, width, bias in (
            ("lenet", (1, 32, 32), 61_696, 84, False),
            ("resnet18", CIFAR, 11_173_962, 512, True),
            ("wrn28", CIFAR, WRN28 - 90 * 641, 640, True),
            ("efficientnet_b0", (3, 200, 200), B0 + 2 * 641, 640, True),
        )
    ),
    ("resnet8", (1, 8, 8), 10, {}, resnet8_by_hand(1), 64),
    ("mlp", MNIST, 10, {"hidden": [200, 200]}, 199_210, 200),
    # FedVLS (AAAI 2025), Table 1, MOON: 200, 100 ReLU, 256, 10 behind the second layer
    ("mlp", MNIST, 10, {"hidden": [200, 200], "projection": 256, "projection_hidden": 100}, 245_726, 256),
    # Numbers that public benchmarks print, or that their code has
    ("linear", MNIST, 10, {"sigmoid": True}, 7_850, 784),
    ("cnn_pfl", CIFAR, 10, {}, 1_626_442, 128),
    ("cnn_pfllib", MNIST, 10, {}, 582_026, 512),
    ("cnn_mcmahan", MNIST, 10, {}, 1_663_370, 512),
    ("vgg11_dropout", CIFAR, 10, {}, 9_750_922, 512),
    ("mobilenet_v2", CIFAR, 10, {}, 2_296_922, 1280),
    ("mobilenet_v2", CIFAR, 10, {"projection": 256, "projection_hidden": 640}, MOBILE_MOON, 256),
    ("resnet18_gn", CIFAR, 10, {}, 11_173_962, 512),  # as resnet18
]


@pytest.mark.parametrize(("name", "in_shape", "num_classes", "args", "count", "width"), one_in(2, COUNTS))
def test_a_net_has_the_sheet_s_number_of_parameters(name, in_shape, num_classes, args, count, width) -> None:
    net = build(name, in_shape, num_classes, 0, **args)
    assert sum(p.numel() for p in net.parameters()) == count
    assert net.feature_dim == net.head.in_features == width
    assert net.head.out_features == num_classes
    assert all(p.requires_grad for p in net.parameters())


def test_every_model_has_a_count() -> None:
    assert {row[0] for row in COUNTS} == set(MODELS)


def mobilenet_norms() -> list[int]:
    """The widths of all BatchNorms: stem, three in each block, those of the four shortcuts that change the
    width at stride 1, and the last.
    """
    found, k_in = [32], 32
    for expansion, width, blocks, _ in STAGES:
        for _ in range(blocks):
            found += [expansion * k_in, expansion * k_in, width]
            k_in = width
    return [*found, 16, 24, 96, 320, 1280]


# Network: running means and variances, layers. docs/papers/fedmr.md §4; docs/papers/map.md §E3 counts
# statistics and counters
BATCH_NORM = {
    "resnet18": (9_600, 20),
    "resnet8": (672, 9),
    "wrn28": (17_952, 25),
    "efficientnet_b0": (42_016, 49),
    "resnet20": (1_589 - 21, 21),
    "resnet56": (4_313 - 57, 57),
    "vgg8_bn": (2_949 - 5, 5),
    "vgg11_bn": (5_512 - 8, 8),
    "vgg16_bn": (8_461 - 13, 13),
    "mobilenet_v2": (2 * sum(mobilenet_norms()), 57),
}


@pytest.mark.parametrize("name", BATCH_NORM)
def test_batch_norm_has_the_sheet_s_number_of_statistics_and_starts_as_the_identity(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 0)
    saved = net.state_dict().keys()
    buffers = {key: value for key, value in net.named_buffers() if key in saved}
    counters = {key for key in buffers if key.endswith("num_batches_tracked")}
    kept = {key for key in buffers if key.endswith(("running_mean", "running_var"))}
    assert (sum(buffers[key].numel() for key in kept), len(counters)) == BATCH_NORM[name]
    assert counters | kept == set(buffers)
    for layer in layers(net, nn.BatchNorm2d):
        assert (layer.weight == 1).all()
        assert not layer.bias.any()
        assert not layer.running_mean.any()
        assert (layer.running_var == 1).all()
        assert layer.num_batches_tracked == 0


VGGS = ["vgg11", "vgg11_bn", "vgg16_bn", "vgg8", "vgg8_bn"]
MAP_RESNETS = ["resnet20", "resnet56"]
MAP_NETS = [
    *("femnist_cnn", "lenet", "lenet_2d", "lenet_authors", "mlpnet", "mlpnet_authors", "tfcnn"),
    *(*VGGS, *MAP_RESNETS),
]


@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_head_bias_decides_whether_the_head_has_a_bias_and_the_nets_of_map_leave_it_out(name: str) -> None:
    usual = name not in MAP_NETS
    assert (small(name).head.bias is not None) == usual
    assert (small(name, head_bias=not usual).head.bias is None) == usual


# Initial weights: mean 0 and the standard deviation of docs/papers/map.md §E3, biases as written there

RESNETS = ["resnet18", "resnet18_gn", "resnet8"]
DEFAULTS = [
    *("cnn5", "cnn_mcmahan", "cnn_pfllib", "linear", "mlp", "mlp5", "mobilenet_v2", "simplecnn"),
    *("vgg11_dropout", "wrn28"),
]


def built(name: str, **args: object) -> Net:
    return build(name, MODELS[name].in_shapes[0], 10, 3, **{**ARGS.get(name, {}), **args})


def layers(net: Net, kind: type[nn.Module]) -> list[nn.Module]:
    found = [module for module in net.modules() if isinstance(module, kind)]
    assert found
    return found


def close_to_normal(weight: torch.Tensor, std: float) -> bool:
    """Mean and standard deviation within five standard errors (std / sqrt(n) and std / sqrt(2 n))."""
    n = weight.numel()
    off_mean = abs(weight.mean().item()) / (std / math.sqrt(n))
    off_std = abs(weight.std().item() - std) / (std / math.sqrt(2 * n))
    return max(off_mean, off_std) < 5


@pytest.mark.parametrize("name", MAP_NETS)
def test_linear_layers_of_map_nets_have_standard_deviation_0_01_and_zero_bias(name: str) -> None:
    for layer in layers(build(name, MODELS[name].in_shapes[0], 10, 3, head_bias=True), nn.Linear):
        assert close_to_normal(layer.weight, 0.01)
        assert not layer.bias.any()


@pytest.mark.parametrize(
    "name", ["femnist_cnn", "lenet", "lenet_2d", "tfcnn", "vgg11_dropout", *VGGS, *MAP_RESNETS, *RESNETS]
)
def test_convolutions_have_variance_2_over_fan_out_and_zero_bias(name: str) -> None:
    for layer in layers(built(name), nn.Conv2d):
        fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
        assert close_to_normal(layer.weight, math.sqrt(2 / fan_out))
        assert (layer.bias is None) == (name in RESNETS + MAP_RESNETS)
        assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, nn.Linear) for n in [*RESNETS, *DEFAULTS, "efficientnet_b0"]]
    + [(n, nn.Conv2d) for n in ("simplecnn", "wrn28", "cnn5", "cnn_mcmahan", "cnn_pfllib")],
)
def test_default_layers_are_uniform_in_one_over_the_root_of_fan_in(name: str, kind: type[nn.Module]) -> None:
    """PyTorch's default: weight and bias uniform in ±1/√(fan in), so standard deviation bound / √3."""
    for layer in layers(built(name), kind):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert layer.weight.abs().max() <= bound * (1 + 1e-6)
        assert close_to_normal(layer.weight, bound / math.sqrt(3))
        assert 0 < layer.bias.abs().max() <= bound * (1 + 1e-6)


def test_the_victim_of_gradient_leakage_is_uniform_within_one_half_everywhere() -> None:
    """Uniform in ±1/2 has standard deviation 1/√12."""
    for p in build("lenet_dlg", CIFAR, 100, 3, fc_layers=3).parameters():
        assert 0.3 < p.abs().max() <= 0.5
        assert p.numel() < 500 or close_to_normal(p, 1 / math.sqrt(12))


def test_efficientnet_s_convolutions_have_torchvision_s_kaiming_normal_of_fan_out() -> None:
    """fan_out of a grouped convolution counts all output channels: torch's rule, not divided by the
    groups.
    """
    large = [layer for layer in layers(built("efficientnet_b0"), nn.Conv2d) if layer.weight.numel() > 2000]
    assert large
    for layer in large:
        fan_out = layer.out_channels * layer.kernel_size[0] ** 2
        assert close_to_normal(layer.weight, math.sqrt(2 / fan_out))


def test_only_the_last_batch_norm_of_wrn28_nearly_forgets_the_batch_before() -> None:
    momenta = [layer.momentum for layer in layers(build("wrn28", (3, 8, 8), 10, 0, widen=1), nn.BatchNorm2d)]
    assert momenta == [0.1] * 24 + [0.9]


def test_pfl_s_cnn_has_glorot_uniform_weights() -> None:
    """Uniform in ±√(6 / (fan in + fan out)); the largest of n weights is within 20 / n of the end."""
    net = build("cnn_pfl", CIFAR, 10, 3)
    for layer in [*layers(net, nn.Conv2d), *layers(net, nn.Linear)]:
        fans = layer.weight.shape[0] + layer.weight.shape[1]
        most = math.sqrt(6 / (fans * math.prod(layer.weight.shape[2:])))
        largest = layer.weight.abs().max().item()
        assert most * (1 - 20 / layer.weight.numel()) < largest <= most


SMALL = {"wrn28": {"widen": 1}}
OWN = "tests.models.own_nets:SmallNet"
COSINE = {"features": "l2", "feature_scale": 3.0, "head_init": "etf", "head_bias": False}


def made(name: str, **args: object) -> Net:
    if name in MODELS:
        return build(name, MODELS[name].in_shapes[0], 2, 7, **SMALL.get(name, {}), **args)  # type: ignore[arg-type]
    return build(name, (1, 8, 8), 2, 7, **args)  # type: ignore[arg-type]


@functools.cache
def cosine(name: str) -> Net:
    return made(name, **COSINE)


def inputs(name: str) -> Tensor:
    shape = MODELS[name].in_shapes[0] if name in MODELS else (1, 8, 8)
    return torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", one_in(3, [*MODELS, OWN]))
def test_the_body_has_the_weights_that_it_has_without_the_arguments(name: str) -> None:
    plain, other = made(name, head_bias=False).state_dict(), cosine(name).state_dict()
    inner = "body.net." if name == OWN else "body."
    for key, value in plain.items():
        if key.startswith("body."):
            assert torch.equal(value, other[key.replace("body.", inner, 1)]), key


@pytest.mark.parametrize("name", [*MODELS, OWN])
def test_it_becomes_a_cosine_classifier_under_a_simplex_frame(name: str) -> None:
    """logits = 3 ẑ · w_c, with rows of length 1 whose cosine for two classes is −1."""
    net, x = cosine(name).eval(), inputs(name)
    with torch.no_grad():
        logits, z = net(x)
    torch.testing.assert_close(z.norm(dim=1), torch.full((3,), 3.0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits[:, 0], -logits[:, 1], rtol=1e-4, atol=1e-4)
    assert type(net.head) is nn.Linear
    assert net.head.bias is None
    scale = [key for key, _ in net.named_parameters() if key.endswith("unit.scale")]
    assert len(scale) == 1
    assert scale[0].startswith("body.")
    assert ("projection" in scale[0]) == hasattr(net.body, "projection")


def test_one_sample_is_normalised_by_the_running_statistics_alone_and_under_vmap() -> None:
    layer, x = FeatureNorm(4).train(), torch.rand(2, 1, 4)
    wanted = x / (1 + layer.eps) ** 0.5
    torch.testing.assert_close(layer(x[0]), wanted[0])
    torch.testing.assert_close(vmap(layer)(x), wanted)


def test_a_feature_of_zeros_stays_zero_and_has_a_finite_gradient_behind_a_relu() -> None:
    weight = torch.full((3, 3), -1.0, requires_grad=True)
    z = UnitFeatures(10.0, learn=True)(F.linear(torch.ones(1, 3), weight).relu())
    assert not bool(z.any())
    (slope,) = torch.autograd.grad(z.sum(), weight)
    assert bool(torch.isfinite(slope).all())


@pytest.mark.parametrize(("classes", "dim"), [(2, 2), (3, 5), (10, 64), (10, 10)])
def test_a_simplex_frame_has_cosines_of_minus_one_over_c_minus_1(classes: int, dim: int) -> None:
    rows = simplex_etf(classes, dim, 3)
    wanted = torch.eye(classes) * (1 + 1 / (classes - 1)) - 1 / (classes - 1)
    torch.testing.assert_close(rows @ rows.T, wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(rows.sum(0), torch.zeros(dim), rtol=0, atol=1e-6)


def test_orthogonal_rows_are_orthonormal_and_every_frame_depends_on_the_seed_alone() -> None:
    rows = orthogonal(10, 64, 3)
    torch.testing.assert_close(rows @ rows.T, torch.eye(10), rtol=0, atol=1e-6)
    for frame in (orthogonal, simplex_etf):
        assert torch.equal(frame(3, 5, 1), frame(3, 5, 1))
        assert not torch.equal(frame(3, 5, 1), frame(3, 5, 2))


@pytest.mark.parametrize(("classes", "dim"), [(3, 5), (10, 64)])
def test_a_sparse_frame_has_60_percent_zeros_and_wide_angles(classes: int, dim: int) -> None:
    """Between random sparse rows the largest cosine is well above 0; the frame's bound is −1/(C − 1)."""
    rows = sparse_etf(classes, dim, 3)
    assert int((rows == 0).sum()) == int(ZEROS * classes * dim)
    torch.testing.assert_close(rows.norm(dim=1), torch.full((classes,), NORM), rtol=1e-6, atol=0)
    unit = F.normalize(rows, dim=1)
    largest = float((unit @ unit.T - 2 * torch.eye(classes)).max())
    assert -1 / (classes - 1) - 1e-6 <= largest < 0.01


@pytest.mark.parametrize("frame", ["orthogonal", "etf", "sparse_etf"])
def test_a_head_with_a_bias_begins_with_bias_0_and_more_classes_than_features_are_refused(frame: str) -> None:
    assert not bool(made("mlp", head_init=frame).state_dict()["head.bias"].any())
    with pytest.raises(UsageError, match="needs features of at least as many numbers as there are classes"):
        build("lenet_2d", (1, 28, 28), 10, 0, head_init=frame)


def test_a_user_s_module_comes_back_with_the_layers_where_its_head_was() -> None:
    net = made(OWN, feature_layer=True, **COSINE).eval()
    own, x = plain_module(net).eval(), inputs(OWN)
    names = [name for name in own.state_dict() if name.startswith("fc.")]
    assert names == ["fc.feature_layer.weight", "fc.feature_layer.bias", "fc.unit.scale", "fc.head.weight"]
    assert torch.equal(own(x), net(x)[0])
    other = build(OWN, (1, 8, 8), 2, 8, feature_layer=True, **COSINE).eval()
    start_from(other, own.state_dict(), "the file")
    assert torch.equal(other(x)[0], net(x)[0])


# Features and layers that are normalised in every sample (Zhang et al., TMLR 2024)


def normalised(features: str, z: Tensor) -> Tensor:
    """What the head gets of features z [B, D]: of length √D (l2), or also centred (ln)."""
    more = {"feature_scale": math.sqrt(z.shape[1]), "learn_scale": False} if features == "l2" else {}
    net = build("linear", (z.shape[1],), 2, 0, features=features, **more)
    return net(z)[1]


def test_features_have_the_worked_numbers() -> None:
    z = torch.tensor([[3.0, 4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert normalised("l2", z)[0].tolist() == pytest.approx([1.2, 1.6, 0.0, 0.0], abs=1e-6)
    assert normalised("ln", z)[0].tolist() == pytest.approx(
        [0.7001389, 1.2602501, -0.9801945, -0.9801945], abs=1e-6
    )
    assert normalised("l2", z)[1].tolist() == pytest.approx([1.0] * 4, abs=1e-6)
    assert normalised("ln", z)[1].tolist() == [0.0] * 4


NORMED = {"mlp": {"hidden": (6, 5)}, "lenet": {}, "simplecnn": {}}


@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("name", NORMED)
def test_every_hidden_layer_is_normalised_after_or_before_its_activation(name: str, place: str) -> None:
    """Over all channels and positions of a sample: mean 0 and mean square 1."""
    net = made(name, norm="layer", norm_place=place)
    assert isinstance(net.body, nn.Sequential)
    z, seen, layers = inputs(name), 0, list(net.body.children())
    for before, layer in itertools.pairwise(layers):
        z = before(z)
        if isinstance(layer, nn.GroupNorm | nn.LayerNorm):
            seen += 1
            found = layer(z).flatten(1)
            torch.testing.assert_close(found.mean(1), torch.zeros(len(z)), rtol=0, atol=1e-5)
            centred = z.flatten(1) - z.flatten(1).mean(1, keepdim=True)
            spread = (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
            torch.testing.assert_close(found, centred / spread, rtol=1e-4, atol=1e-5)
            assert isinstance(before, nn.ReLU) == (place == "after")
    assert seen == sum(isinstance(one, nn.ReLU) for one in layers) > 1
