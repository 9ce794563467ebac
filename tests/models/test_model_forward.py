"""The forward pass: two outputs, and the batch axis."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import StochasticDepth

from raffed.models import MODELS, build
from raffed.models.net import Dropout, GridMean
from tests.models.small_models import DROPOUT, SIGNED, inputs, small


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_head_of_the_features_which_a_relu_or_sigmoid_makes(name: str) -> None:
    net, x = small(name).eval(), inputs(name, 8)
    logits, z = net(x)
    assert logits.shape == (8, 3)
    assert z.shape == (8, net.feature_dim)
    assert torch.equal(z, net.body(x))
    assert torch.equal(logits, net.head(z))
    assert (z.min() < 0) == (name in SIGNED)
    assert z.max() > 0 or name == "lenet_2d"


@pytest.mark.parametrize("name", MODELS)
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
