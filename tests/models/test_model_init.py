"""Initial weights: mean 0 and the standard deviation of docs/papers/map.md §E3, biases as written there."""

import math

import pytest
import torch
from raffed.reproductions.studies.metrics import mean_distance
from torch import nn

from raffed.models import MODELS, build
from raffed.models.net import Net

VGGS = ["vgg11", "vgg11_bn", "vgg16_bn", "vgg8", "vgg8_bn"]
MAP_RESNETS = ["resnet20", "resnet56"]
MAP_NETS = [
    "femnist_cnn",
    "lenet",
    "lenet_2d",
    "lenet_authors",
    "mlpnet",
    "mlpnet_authors",
    "tfcnn",
    *VGGS,
    *MAP_RESNETS,
]
RESNETS = ["resnet18", "resnet18_gn", "resnet8"]
DEFAULTS = [
    "cnn5",
    "cnn_mcmahan",
    "cnn_pfllib",
    "linear",
    "mlp",
    "mlp5",
    "mobilenet_v2",
    "simplecnn",
    "vgg11_dropout",
    "wrn28",
]
OTHERS = ["cnn_pfl", "efficientnet_b0", "lenet_dlg"]
ARGS: dict[str, dict[str, object]] = {"wrn28": {"widen": 1}}


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


def test_every_model_has_one_of_the_initialisations() -> None:
    assert sorted([*MAP_NETS, *RESNETS, *DEFAULTS, *OTHERS]) == list(MODELS)


@pytest.mark.parametrize("name", MAP_NETS)
def test_linear_layers_of_map_nets_have_standard_deviation_0_01_and_zero_bias(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 3, head_bias=True)
    for layer in layers(net, nn.Linear):
        assert close_to_normal(layer.weight, 0.01)
        assert not layer.bias.any()


@pytest.mark.parametrize(
    "name", ["femnist_cnn", "lenet", "lenet_2d", "tfcnn", "vgg11_dropout", *VGGS, *MAP_RESNETS, *RESNETS]
)
def test_convolutions_have_variance_2_over_fan_out_and_zero_bias(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 3)
    for layer in layers(net, nn.Conv2d):
        fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
        assert close_to_normal(layer.weight, math.sqrt(2 / fan_out))
        assert (layer.bias is None) == (name in RESNETS + MAP_RESNETS)
        assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "resnet8",
        *MAP_RESNETS,
        "vgg8_bn",
        "vgg11_bn",
        "vgg16_bn",
        "wrn28",
        "efficientnet_b0",
        "mobilenet_v2",
    ],
)
def test_batch_norm_starts_as_the_identity(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 3, **ARGS.get(name, {}))
    for layer in layers(net, nn.BatchNorm2d):
        assert (layer.weight == 1).all()
        assert not layer.bias.any()
        assert not layer.running_mean.any()
        assert (layer.running_var == 1).all()
        assert layer.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, nn.Linear) for n in [*RESNETS, *DEFAULTS, "efficientnet_b0"]]
    + [(n, nn.Conv2d) for n in ("simplecnn", "wrn28", "cnn5", "cnn_mcmahan", "cnn_pfllib")],
)
def test_default_layers_are_uniform_within_one_over_the_root_of_fan_in(
    name: str, kind: type[nn.Module]
) -> None:
    """PyTorch's default: weight and bias uniform in +-1/sqrt(fan_in), so standard deviation bound /
    sqrt(3).
    """
    for layer in layers(build(name, MODELS[name].in_shapes[0], 10, 3, **ARGS.get(name, {})), kind):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert layer.weight.abs().max() <= bound * (1 + 1e-6)
        assert close_to_normal(layer.weight, bound / math.sqrt(3))
        assert 0 < layer.bias.abs().max() <= bound * (1 + 1e-6)


def test_the_victim_of_gradient_leakage_is_uniform_within_one_half_everywhere() -> None:
    """Uniform in +-1/2 has standard deviation 1/sqrt(12)."""
    for p in build("lenet_dlg", (3, 32, 32), 100, 3, fc_layers=3).parameters():
        assert p.abs().max() <= 0.5
        assert p.numel() < 500 or close_to_normal(p, 1 / math.sqrt(12))
        assert p.abs().max() > 0.3


def test_efficientnet_s_convolutions_have_torchvision_s_kaiming_normal_of_fan_out() -> None:
    """fan_out of a grouped convolution counts all output channels: torch's rule, not divided by the
    groups.
    """
    for layer in layers(build("efficientnet_b0", (3, 200, 200), 8, 3), nn.Conv2d):
        if layer.weight.numel() > 2000:
            assert close_to_normal(
                layer.weight, math.sqrt(2 / (layer.out_channels * layer.kernel_size[0] ** 2))
            )


def test_only_the_last_batch_norm_of_wrn28_nearly_forgets_the_batch_before() -> None:
    momenta = [layer.momentum for layer in layers(build("wrn28", (3, 8, 8), 10, 0, widen=1), nn.BatchNorm2d)]
    assert momenta == [0.1] * 24 + [0.9]


def test_the_proxies_of_missing_classes_start_as_far_apart_as_the_sheet_says() -> None:
    """docs/papers/map.md §E6, Fig. 6: about 0.01·√(2·512) = 0.32 between two rows of VGG11-BN's head,
    N(0, 0.01²) each.
    """
    head = build("vgg11_bn", (3, 32, 32), 10, 0).get_submodule("head").weight
    assert mean_distance(head.detach(), [8], [9]) == pytest.approx(0.32, abs=0.03)


def test_pfl_s_cnn_has_glorot_uniform_weights() -> None:
    """Uniform in ±√(6 / (fan in + fan out)); the largest of n weights is within 20 / n of the end."""
    net = build("cnn_pfl", (3, 32, 32), 10, 3)
    for layer in [*layers(net, nn.Conv2d), *layers(net, nn.Linear)]:
        fans = layer.weight.shape[0] + layer.weight.shape[1]
        most = math.sqrt(6 / (fans * math.prod(layer.weight.shape[2:])))
        largest = layer.weight.abs().max().item()
        assert most * (1 - 20 / layer.weight.numel()) < largest <= most
