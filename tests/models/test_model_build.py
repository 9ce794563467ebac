"""Names, arguments, shapes, seeds: what `build` promises before any number is computed."""

from __future__ import annotations

import pytest
import torch

from raffed.errors import UsageError
from raffed.models import MODELS, build
from tests.models.small_models import small
from tests.params import one_in


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


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


@pytest.mark.parametrize("name", MODELS)
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
    maps: list[tuple[int, ...]] = []
    for net in (plain, halved):
        net.body.pool.register_forward_hook(lambda _, inputs, __: maps.append(tuple(inputs[0].shape[2:])))
        net(torch.zeros(2, 1, 28, 28))
    assert maps == [(7, 7), (4, 4)]
    with pytest.raises(UsageError, match="at least 16"):
        build("resnet8", (1, 14, 28), 10, 0, stem_stride=2)
