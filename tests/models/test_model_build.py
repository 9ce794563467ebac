"""Names, arguments, shapes, seeds: what `build` promises before any number is computed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from raffed.config.source import described
from raffed.config.validation import Declaration, Value, declarations
from raffed.errors import UsageError
from raffed.models import MODELS, build, check_args, declared_args
from raffed.models.last_layers import last_layers
from tests.models.small_models import SMALLEST, small
from tests.params import one_in

EVERYWHERE = tuple(declarations(last_layers))


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
    assert list(MODELS) == list(SMALLEST) == sorted(MODELS)
    assert len(MODELS) == 30


@pytest.mark.parametrize("name", MODELS)
def test_an_entry_describes_itself_and_its_factory_bears_its_name(name: str) -> None:
    info = MODELS[name]
    assert info.name == name == info.load().__name__
    assert all((info.layers, info.source, info.in_shapes))
    assert "\n" not in info.layers
    for in_shape in info.in_shapes:
        build(name, in_shape, 10, 0)


def test_a_refused_build_leaves_torch_s_global_generator_where_it_was() -> None:
    before = torch.get_rng_state()
    with pytest.raises(UsageError):
        build("lenet", (1, 8, 8), 10, 7)
    assert torch.equal(before, torch.get_rng_state())


def test_a_net_is_built_in_train_mode_on_the_cpu_whatever_the_default_device() -> None:
    with torch.device("meta"):
        net = build("resnet8", (1, 8, 8), 10, 7)
    assert {t.device.type for t in net.state_dict().values()} == {"cpu"}
    assert all(module.training for module in net.modules())


def refused_values(one: Declaration) -> Iterator[Value]:
    """Values of wrong types, just outside the range, and lists with one wrong or missing number."""
    number = {"bool": 1, "int": 1.5, "float": "0.5", "str": 1, "list of int": 64}[one.kind]
    yield from ("text", None, {}, number)
    if one.kind in ("int", "float"):
        yield True
        assert one.range is not None
        yield from (one.range.low - 1, one.range.high + 1)
    if one.kind == "list of int":
        yield from ([], [64, 0], [64, "64"], [64, True], [64.0, 64.0], "64")


@pytest.mark.parametrize("name", MODELS)
def test_a_value_of_a_wrong_type_or_outside_the_range_is_refused_by_name(name: str) -> None:
    declared = [one for one in declared_args(name).values() if name == "mlp" or one.name not in EVERYWHERE]
    for one in declared:
        for value in refused_values(one):
            with pytest.raises(UsageError) as refused:
                check_args(name, {one.name: value})
            choice = one.choices and isinstance(value, str)
            start = f"unknown {one.name} " if choice else f"{name}: {one.name} = "
            assert str(refused.value).startswith(f"{start}{value!r}")
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", MODELS)
def test_every_argument_has_a_default_a_meaning_and_if_it_is_a_number_a_range(name: str) -> None:
    for one in (*declarations(MODELS[name].load()).values(), *declared_args(name).values()):
        assert one.doc.endswith("."), one
        assert bool(one.default) == (one.name not in ("in_shape", "num_classes")), one
        assert (one.range is not None) == (one.kind not in ("bool", "str")), one
        assert bool(one.choices) == (one.kind == "str"), one
        assert (one.length is not None) == (one.kind == "list of int"), one


@pytest.mark.parametrize("name", MODELS)
def test_a_listing_without_torch_reads_the_declarations_that_the_check_reads(name: str) -> None:
    read = MODELS[name].described.arguments
    read = read + described("raffed.models.last_layers", "last_layers").arguments
    assert read == list(declared_args(name).values())


@pytest.mark.parametrize("name", MODELS)
def test_a_factory_that_is_called_directly_checks_as_build_does(name: str) -> None:
    factory = MODELS[name].load()
    with pytest.raises(UsageError, match=f"{name}: head_bias = 'x' is a str, but must be a bool"):
        factory(MODELS[name].in_shapes[0], 10, head_bias="x")
    with pytest.raises(UsageError, match=f"{name}: num_classes = 0 is below 1"):
        factory(MODELS[name].in_shapes[0], 0)


@pytest.mark.parametrize("name", ["zzzz", "in_shape", "num_classes", "seed"])
def test_an_unknown_argument_and_what_a_run_sets_itself_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown argument of mlp '{name}'; (known|nearest): "):
        check_args("mlp", {name: 3})


def test_a_list_as_files_write_it_makes_the_same_network_as_a_tuple() -> None:
    """JSON and TOML have lists only."""
    for name, given in (("mlp", {"hidden": (8,)}), ("cnn5", {"channels": (4, 8), "hidden": (16,)})):
        tuples = build(name, MODELS[name].in_shapes[0], 10, 5, **given)
        lists = build(name, MODELS[name].in_shapes[0], 10, 5, **{key: [*one] for key, one in given.items()})
        assert same_bits(tuples.state_dict(), lists.state_dict())


@pytest.mark.parametrize("num_classes", [0, 2.0, True])
def test_the_number_of_classes_must_be_a_positive_integer(num_classes: object) -> None:
    with pytest.raises(UsageError, match="mlp: num_classes = "):
        build("mlp", (1, 8, 8), num_classes, 0)


@pytest.mark.parametrize(
    ("name", "in_shape"),
    [
        *(("lenet", in_shape) for in_shape in ((8, 8), (1, 1, 8, 8), 64, (0, 8, 8), (1, 8.0, 8))),
        *(("mlp", in_shape) for in_shape in ((), "1x8", (0, 8, 8))),
    ],
)
def test_a_shape_must_be_of_positive_integers_and_that_of_an_image_of_three(name: str, in_shape) -> None:
    with pytest.raises(UsageError, match=rf"{name}: .*in_shape"):
        build(name, in_shape, 10, 0)


REFUSED = [  # the smallest shape of each network, one smaller on a side
    ("lenet", (3, 64, 64)),
    ("lenet", (1, 28, 32)),
    ("lenet_authors", (1, 15, 16)),
    ("simplecnn", (1, 16, 15)),
    ("tfcnn", (3, 7, 8)),
    ("femnist_cnn", (1, 8, 7)),
    ("resnet8", (1, 7, 8)),
    ("resnet18", (1, 8, 9)),
    ("resnet20", (1, 7, 8)),
    ("wrn28", (3, 8, 7)),
    ("lenet_2d", (1, 20, 20)),
    ("cnn5", (3, 15, 16)),
    ("lenet_dlg", (3, 1, 2)),
    ("efficientnet_b0", (3, 32, 33)),
    ("efficientnet_b0", (1, 64, 64)),  # it takes colour alone
    ("cnn_pfl", (1, 5, 6)),
    ("cnn_pfllib", (1, 15, 16)),
    ("cnn_mcmahan", (1, 4, 3)),
    ("mobilenet_v2", (3, 9, 8)),
    *[(name, (3, 31, 32)) for name in ("vgg8", "vgg8_bn", "vgg11_bn", "vgg11_dropout", "vgg16_bn")],
]


@pytest.mark.parametrize(("name", "in_shape"), REFUSED)
def test_a_shape_that_a_net_cannot_take_is_refused_with_net_shape_and_what_it_takes(name, in_shape) -> None:
    given = "x".join(map(str, in_shape))
    refusal = rf"{name.removesuffix('_2d')} cannot take {given} inputs .*; it takes [K3]x"
    with pytest.raises(UsageError, match=refusal):
        build(name, in_shape, 10, 0)


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
