"""Names, keywords, shapes, seeds: what `build` promises before any number is computed."""

import subprocess
import sys

import pytest
import torch

from raffed.core.errors import UnknownNameError, UsageError
from raffed.models import MODELS, accepted_args, build

NAMES = ["femnist_cnn", "lenet", "lenet_authors", "mlp", "mlpnet", "resnet18", "resnet8", "simplecnn", "tfcnn"]
SEEN: set[str] = set()


def weights(name: str, seed: int) -> dict[str, torch.Tensor]:
    return build(name, MODELS[name].in_shapes[0], 10, seed).state_dict()


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", MODELS)
def test_every_name_of_a_net_starts_with_body_or_head(name: str) -> None:
    SEEN.add(name)
    net = build(name, MODELS[name].in_shapes[0], 10, 0)
    names = list(net.state_dict())
    assert names
    assert all(key.startswith(("body.", "head.")) for key in names)
    assert [key for key in names if key.startswith("head.")] == [f"head.{key}" for key in net.head.state_dict()]
    assert any(key.startswith("body.") for key, _ in net.named_parameters())


def test_the_parametrised_tests_saw_every_model() -> None:
    assert len(MODELS) == 9
    assert SEEN in (set(), set(MODELS))  # empty only where this test runs alone
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
    code = "import sys; from raffed.models import MODELS; print(len(MODELS), *MODELS.values()); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{len(MODELS)} ")


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"nearest: .*lenet"):
        build("lenett", (1, 28, 28), 10, 0)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before(name: str) -> None:
    torch.manual_seed(1)
    first = weights(name, 7)
    torch.rand(13)
    assert same_bits(first, weights(name, 7))


@pytest.mark.parametrize("name", MODELS)
def test_another_seed_gives_other_weights_in_every_layer(name: str) -> None:
    one, other = weights(name, 7), weights(name, 8)
    matrices = [key for key in one if one[key].dim() > 1]
    assert len(matrices) >= 2
    assert not any(torch.equal(one[key], other[key]) for key in matrices)


@pytest.mark.parametrize("name", MODELS)
def test_building_leaves_torch_s_global_generator_where_it_was(name: str) -> None:
    before = torch.get_rng_state()
    weights(name, 7)
    assert torch.equal(before, torch.get_rng_state())


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
    with pytest.raises(UsageError, match=rf"{name}: unknown keyword 'depth'.*head_bias") as refused:
        build(name, MODELS[name].in_shapes[0], 10, 0, depth=3)
    assert all(key in str(refused.value) for key in accepted_args(name))
    assert ("hidden" in str(refused.value)) == (name in ("mlp", "mlpnet"))


@pytest.mark.parametrize("hidden", [(), 64, "64", (64, 0), (64, -1), (64.0,), (True,)])
@pytest.mark.parametrize("name", ["mlp", "mlpnet"])
def test_hidden_must_be_a_list_of_positive_widths(name: str, hidden: object) -> None:
    with pytest.raises(UsageError, match=f"{name}: hidden = "):
        build(name, (1, 8, 8), 10, 0, hidden=hidden)


@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_head_bias_must_be_a_boolean(value: object) -> None:
    with pytest.raises(UsageError, match="neither True nor False"):
        build("mlp", (1, 8, 8), 10, 0, head_bias=value)


@pytest.mark.parametrize("num_classes", [0, -1, 2.0, True])
def test_the_number_of_classes_must_be_a_positive_integer(num_classes: object) -> None:
    with pytest.raises(UsageError, match="mlp: num_classes must be an integer of at least 1"):
        build("mlp", (1, 8, 8), num_classes, 0)


@pytest.mark.parametrize("in_shape", [(8, 8), (1, 1, 8, 8), 64, "1x8", (0, 8, 8), (1, 8.0, 8)])
def test_an_input_shape_must_be_three_positive_integers(in_shape: object) -> None:
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
]


@pytest.mark.parametrize(("name", "in_shape"), REFUSED)
def test_a_shape_that_a_net_cannot_take_is_refused_with_net_shape_and_what_it_takes(name, in_shape) -> None:
    got = "x".join(map(str, in_shape))
    with pytest.raises(UsageError, match=rf"{name} cannot take {got} inputs .*; it takes Kx"):
        build(name, in_shape, 10, 0)


def test_every_convolutional_net_refuses_some_shape() -> None:
    assert {name for name, _ in REFUSED} == set(MODELS) - {"mlp", "mlpnet"}
