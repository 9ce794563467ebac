"""Features of one length or after BatchNorm, and heads drawn as frames, for every network."""

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
from raffed.models.net import Net
from raffed.runtime.initial_weights import plain_module, start_from
from tests.params import one_in

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
def test_a_head_with_a_bias_begins_with_bias_0(frame: str) -> None:
    net = made("mlp", head_init=frame)
    assert net.head.bias is not None
    assert not bool(net.head.bias.any())


@pytest.mark.parametrize("frame", ["orthogonal", "etf", "sparse_etf"])
def test_more_classes_than_features_are_refused(frame: str) -> None:
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
