"""Initial weights: mean 0 and the sheet's standard deviation, biases as written there."""

import math

import pytest
import torch
from torch import nn

from raffed.models import MODELS, build
from raffed.models.net import Net

MAP_NETS = ["femnist_cnn", "lenet", "lenet_authors", "mlpnet", "tfcnn"]
RESNETS = ["resnet18", "resnet8"]
DEFAULTS = ["mlp", "simplecnn"]


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


def test_every_model_has_one_of_the_three_initialisations() -> None:
    assert sorted([*MAP_NETS, *RESNETS, *DEFAULTS]) == list(MODELS)


@pytest.mark.parametrize("name", MAP_NETS)
def test_linear_layers_of_map_nets_have_standard_deviation_0_01_and_zero_bias(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 3, head_bias=True)
    for layer in layers(net, nn.Linear):
        assert close_to_normal(layer.weight, 0.01)
        assert not layer.bias.any()


@pytest.mark.parametrize("name", ["femnist_cnn", "lenet", "tfcnn", *RESNETS])
def test_convolutions_have_variance_2_over_fan_out_and_zero_bias(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 3)
    for layer in layers(net, nn.Conv2d):
        fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
        assert close_to_normal(layer.weight, math.sqrt(2 / fan_out))
        assert (layer.bias is None) == (name in RESNETS)
        assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize("name", RESNETS)
def test_batch_norm_starts_as_the_identity(name: str) -> None:
    net = build(name, MODELS[name].in_shapes[0], 10, 3)
    for layer in layers(net, nn.BatchNorm2d):
        assert (layer.weight == 1).all()
        assert not layer.bias.any()
        assert not layer.running_mean.any()
        assert (layer.running_var == 1).all()
        assert layer.num_batches_tracked == 0


@pytest.mark.parametrize(("name", "kind"), [(n, nn.Linear) for n in RESNETS + DEFAULTS] + [("simplecnn", nn.Conv2d)])
def test_default_layers_are_uniform_within_one_over_the_root_of_fan_in(name: str, kind: type[nn.Module]) -> None:
    """PyTorch's default: weight and bias uniform in +-1/sqrt(fan_in), so standard deviation bound / sqrt(3)."""
    for layer in layers(build(name, MODELS[name].in_shapes[0], 10, 3), kind):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        assert layer.weight.abs().max() <= bound * (1 + 1e-6)
        assert close_to_normal(layer.weight, bound / math.sqrt(3))
        assert 0 < layer.bias.abs().max() <= bound * (1 + 1e-6)
