"""Names, keywords, shapes, seeds: what `build` promises before any number is computed."""

import subprocess
import sys

import pytest
import torch

from raffed.errors import UnknownNameError, UsageError
from raffed.models import MODELS, build, declared_args
from tests.models.small_models import small
from tests.params import one_in

NAMES = [
    "cnn5",
    "cnn_mcmahan",
    "cnn_pfl",
    "cnn_pfllib",
    "efficientnet_b0",
    "femnist_cnn",
    "lenet",
    "lenet_2d",
    "lenet_authors",
    "lenet_dlg",
    "linear",
    "mlp",
    "mlp5",
    "mlpnet",
    "mlpnet_authors",
    "mobilenet_v2",
    "resnet18",
    "resnet18_gn",
    "resnet20",
    "resnet56",
    "resnet8",
    "simplecnn",
    "tfcnn",
    "vgg11",
    "vgg11_bn",
    "vgg11_dropout",
    "vgg16_bn",
    "vgg8",
    "vgg8_bn",
    "wrn28",
]


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


def test_there_are_thirty_models_in_the_order_of_their_names() -> None:
    assert len(MODELS) == 30
    assert list(MODELS) == NAMES == sorted(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_an_entry_describes_itself_and_its_factory_bears_its_name(name: str) -> None:
    info = MODELS[name]
    assert info.name == name == info.load().__name__
    assert all((info.title, info.layers, info.source, info.in_shapes))
    assert "\n" not in info.layers
    for in_shape in info.in_shapes:
        build(name, in_shape, 10, 0)


def test_listing_the_models_imports_no_torch() -> None:
    code = (
        "import sys; from raffed.models import MODELS; print(len(MODELS), *MODELS.values()); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{len(MODELS)} ")


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"nearest: .*lenet"):
        build("lenett", (1, 28, 28), 10, 0)


def test_a_refused_build_leaves_torch_s_global_generator_where_it_was() -> None:
    before = torch.get_rng_state()
    with pytest.raises(UsageError):
        build("lenet", (1, 8, 8), 10, 7)
    assert torch.equal(before, torch.get_rng_state())


def test_a_net_is_built_on_the_cpu_whatever_the_default_device() -> None:
    with torch.device("meta"):
        net = build("resnet8", (1, 8, 8), 10, 7)
    assert {t.device.type for t in net.state_dict().values()} == {"cpu"}


def test_a_net_is_built_in_train_mode() -> None:
    assert all(module.training for module in build("resnet8", (1, 8, 8), 10, 0).modules())


@pytest.mark.parametrize("name", MODELS)
def test_an_unknown_keyword_is_refused_with_the_accepted_ones(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"unknown argument of {name} 'zzzz'; known: .*head_bias"
    ) as refused:
        build(name, MODELS[name].in_shapes[0], 10, 0, zzzz=3)
    assert all(key in str(refused.value) for key in declared_args(name))
    known = str(refused.value).partition("known: ")[2].split(", ")
    assert ("hidden" in known) == (name in ("cnn5", "mlp", "mlp5", "mlpnet"))


@pytest.mark.parametrize("num_classes", [0, -1, 2.0, True])
def test_the_number_of_classes_must_be_a_positive_integer(num_classes: object) -> None:
    with pytest.raises(UsageError, match="mlp: num_classes = "):
        build("mlp", (1, 8, 8), num_classes, 0)


@pytest.mark.parametrize("in_shape", [(8, 8), (1, 1, 8, 8), 64, "1x8", (0, 8, 8), (1, 8.0, 8)])
def test_an_image_s_shape_must_be_three_positive_integers(in_shape: object) -> None:
    with pytest.raises(UsageError, match=r"lenet: .*in_shape"):
        build("lenet", in_shape, 10, 0)


@pytest.mark.parametrize("in_shape", [(), 64, "1x8", (0, 8, 8), (1, 8.0, 8)])
def test_a_perceptron_takes_samples_of_any_shape_of_positive_integers(in_shape: object) -> None:
    assert build("mlp", (13,), 3, 0)(torch.zeros(2, 13))[0].shape == (2, 3)
    with pytest.raises(UsageError, match=r"mlp: .*in_shape"):
        build("mlp", in_shape, 10, 0)


REFUSED = [
    ("lenet", (1, 8, 8)),
    ("lenet", (3, 64, 64)),
    ("lenet", (1, 28, 32)),
    ("lenet_authors", (1, 15, 16)),
    ("simplecnn", (1, 15, 16)),
    ("simplecnn", (1, 16, 15)),
    ("tfcnn", (3, 7, 8)),
    ("femnist_cnn", (1, 8, 7)),
    ("resnet8", (1, 7, 8)),
    ("resnet18", (1, 8, 9)),
    ("resnet20", (1, 7, 8)),
    ("resnet56", (3, 8, 7)),
    ("wrn28", (3, 8, 7)),
    ("lenet_2d", (1, 20, 20)),
    ("cnn5", (3, 15, 16)),
    ("lenet_dlg", (3, 1, 2)),
    ("efficientnet_b0", (3, 32, 33)),
    ("cnn_pfl", (1, 5, 6)),
    ("cnn_pfllib", (1, 15, 16)),
    ("cnn_mcmahan", (1, 4, 3)),
    ("mobilenet_v2", (3, 9, 8)),
    *[(name, (3, 31, 32)) for name in ("vgg8", "vgg8_bn", "vgg11", "vgg11_bn", "vgg11_dropout", "vgg16_bn")],
]


@pytest.mark.parametrize(("name", "in_shape"), REFUSED)
def test_a_shape_that_a_net_cannot_take_is_refused_with_net_shape_and_what_it_takes(name, in_shape) -> None:
    got = "x".join(map(str, in_shape))
    with pytest.raises(
        UsageError, match=rf"{name.removesuffix('_2d')} cannot take {got} inputs .*; it takes [K3]x"
    ):
        build(name, in_shape, 10, 0)


def test_efficientnet_takes_colour_alone() -> None:
    with pytest.raises(UsageError, match="cannot take 1x64x64 inputs"):
        build("efficientnet_b0", (1, 64, 64), 10, 0)


def test_every_convolutional_net_refuses_some_shape() -> None:
    assert {name for name, _ in REFUSED} == set(MODELS) - {
        "linear",
        "mlp",
        "mlp5",
        "mlpnet",
        "mlpnet_authors",
        "resnet18_gn",  # GroupNorm can train on a map of 1x1
    }


def test_groups_that_do_not_divide_the_smallest_width_are_refused() -> None:
    with pytest.raises(UsageError, match="groups = 48 must divide 64"):
        build("resnet18_gn", (1, 28, 28), 10, 0, groups=48)


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
