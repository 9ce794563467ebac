"""Features of one length or after BatchNorm, and heads drawn as frames, for every network."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

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


@pytest.mark.parametrize("name", ["mlp", "lenet", OWN])
def test_batch_norm_of_features_has_mean_0_and_variance_1_in_training(name: str) -> None:
    net = made(name, features="bn", feature_layer=True).train()
    z = net(torch.cat([inputs(name)] * 2) + torch.rand(6, 1, 1, 1))[1]
    torch.testing.assert_close(z.mean(0), torch.zeros(net.feature_dim), rtol=0, atol=1e-4)
    assert sum(isinstance(layer, FeatureNorm) for layer in net.modules()) == 1


def test_one_sample_is_normalised_by_the_running_statistics_alone_and_under_vmap() -> None:
    layer, x = FeatureNorm(4).train(), torch.rand(2, 1, 4)
    wanted = x / (1 + layer.eps) ** 0.5
    torch.testing.assert_close(layer(x[0]), wanted[0])
    torch.testing.assert_close(vmap(layer)(x), wanted)


def test_a_feature_layer_makes_features_that_may_be_negative_and_depends_on_the_seed() -> None:
    x = inputs("mlp")
    plain, more = made("mlp"), made("mlp", feature_layer=True)
    assert bool((plain(x)[1] >= 0).all())
    assert bool((more(x)[1] < 0).any())
    again, other = (build("mlp", (1, 8, 8), 2, seed, feature_layer=True) for seed in (7, 8))
    key = "body.feature_layer.weight"
    assert torch.equal(more.state_dict()[key], again.state_dict()[key])
    assert not torch.equal(more.state_dict()[key], other.state_dict()[key])


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


@pytest.mark.parametrize("args", [{"feature_scale": 2.0}, {"features": "bn", "learn_scale": False}])
def test_a_length_without_features_of_one_length_is_refused(args: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="have no effect with features = "):
        made("mlp", **args)


def test_a_user_s_module_comes_back_with_the_layers_where_its_head_was() -> None:
    net = made(OWN, feature_layer=True, **COSINE).eval()
    own, x = plain_module(net).eval(), inputs(OWN)
    names = [name for name in own.state_dict() if name.startswith("fc.")]
    assert names == ["fc.feature_layer.weight", "fc.feature_layer.bias", "fc.unit.scale", "fc.head.weight"]
    assert torch.equal(own(x), net(x)[0])
    other = build(OWN, (1, 8, 8), 2, 8, feature_layer=True, **COSINE).eval()
    start_from(other, own.state_dict(), "the file")
    assert torch.equal(other(x)[0], net(x)[0])


def test_a_user_s_head_loses_its_bias_and_cannot_get_one() -> None:
    assert made(OWN, head_bias=False).head.bias is None
    with pytest.raises(UsageError, match="its head has no bias; leave it out"):
        build("tests.models.own_nets:Biasless", (4,), 2, 0, head_bias=True)


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


@pytest.mark.parametrize("features", ["l2", "ln"])
def test_features_do_not_see_a_scale_and_ln_sees_no_shift(features: str) -> None:
    """Up to ε, which is 1e-5 beside a variance of about 100; and the gradient is orthogonal to z."""
    z = 10.0 * torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    shift = 5.0 if features == "ln" else 0.0
    torch.testing.assert_close(
        normalised(features, 7.0 * z + shift), normalised(features, z), rtol=0, atol=1e-5
    )
    live = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad((normalised(features, live) * torch.arange(8.0).sin()).sum(), live)
    torch.testing.assert_close((slope * z).sum(1), torch.zeros(3), rtol=0, atol=1e-5)
    assert float(slope.abs().max()) > 1e-2


NORMED = {"mlp": {"hidden": (6, 5)}, "lenet": {}, "simplecnn": {}}


@pytest.mark.parametrize("name", NORMED)
def test_a_norm_changes_no_parameter_and_none_is_the_network_without_the_argument(name: str) -> None:
    plain, none = (made(name, **NORMED[name], **args).state_dict() for args in ({}, {"norm": "none"}))
    for args in ({"norm": "layer"}, {"norm": "layer", "norm_place": "before"}):
        other = made(name, **NORMED[name], **args).state_dict()  # type: ignore[arg-type]
        assert list(plain) == list(none) == list(other)
        assert all(torch.equal(plain[key], other[key]) for key in plain)
    assert torch.equal(made(name, norm="none")(inputs(name))[0], made(name)(inputs(name))[0])


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


@pytest.mark.parametrize(
    "args", [{"norm": "layer"}, {"norm": "layer", "norm_place": "before"}, {"features": "ln"}]
)
@pytest.mark.parametrize("name", NORMED)
def test_stacked_networks_with_norms_are_each_alone(name: str, args: dict[str, object]) -> None:
    net, x = made(name, **args), inputs(name)
    stacked = {key: torch.stack([t, 1.5 * t]).detach() for key, t in net.named_parameters()}
    together = vmap(lambda w: functional_call(net, w, (x,)))(stacked)
    for row in range(2):
        alone = functional_call(net, {key: t[row] for key, t in stacked.items()}, (x,))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[row], b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NORMED)
def test_a_place_without_a_norm_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: norm_place = 'before' has no effect with norm = 'none'"):
        made(name, norm_place="before")


def test_an_argument_of_this_name_in_a_user_s_own_signature_is_the_user_s() -> None:
    net = build("tests.models.own_nets:OwnFeatures", (4,), 2, 0, features=6)
    assert net.feature_dim == 6
    assert not any(isinstance(layer, UnitFeatures) for layer in net.modules())
