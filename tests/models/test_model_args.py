"""Every argument of every network is declared in its factory, and one check reads the declarations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from raffed.config.source import described
from raffed.config.validation import Declaration, Value, declarations
from raffed.errors import UsageError
from raffed.models import MODELS, accepted_args, build, check_args, declared_args
from raffed.models.last_layers import last_layers

COMMON = ("in_shape", "num_classes")
EVERYWHERE = tuple(declarations(last_layers))
ARGUMENTS = [  # what every network has is tried on one
    (name, one)
    for name in MODELS
    for one in declared_args(name).values()
    if name == "mlp" or one.name not in EVERYWHERE
]


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
def test_a_value_of_a_wrong_type_or_outside_the_range_is_refused_in_one_line_that_names_the_argument(
    name: str,
) -> None:
    for one in (argument for owner, argument in ARGUMENTS if owner == name):
        for value in refused_values(one):
            with pytest.raises(UsageError) as refused:
                check_args(name, {one.name: value})
            said = str(refused.value)
            known = (
                f"unknown {one.name} " if one.choices and isinstance(value, str) else f"{name}: {one.name} = "
            )
            assert said.startswith(f"{known}{value!r}")
            assert "\n" not in said


def test_the_law_is_about_every_argument_of_every_network() -> None:
    assert len(ARGUMENTS) >= 2 * len(MODELS) - 10


@pytest.mark.parametrize("name", MODELS)
def test_every_argument_has_a_default_a_meaning_and_if_it_is_a_number_a_range(name: str) -> None:
    for one in (*declarations(MODELS[name].load()).values(), *declared_args(name).values()):
        assert one.doc.endswith("."), one
        assert bool(one.default) == (one.name not in COMMON), one
        assert (one.range is not None) == (one.kind not in ("bool", "str")), one
        assert bool(one.choices) == (one.kind == "str"), one
        assert (one.length is not None) == (one.kind == "list of int"), one


@pytest.mark.parametrize("name", MODELS)
def test_a_listing_without_torch_reads_the_declarations_that_the_check_reads(name: str) -> None:
    read = described(f"raffed.models.{MODELS[name].module}", name).arguments
    read += described("raffed.models.last_layers", "last_layers").arguments
    assert read == list(declared_args(name).values())


@pytest.mark.parametrize("name", MODELS)
def test_a_factory_that_is_called_directly_checks_as_build_does(name: str) -> None:
    factory = MODELS[name].load()
    with pytest.raises(UsageError, match=f"{name}: head_bias = 'x' is a str, but must be a bool"):
        factory(MODELS[name].in_shapes[0], 10, head_bias="x")
    with pytest.raises(UsageError, match=f"{name}: num_classes = 0 is below 1"):
        factory(MODELS[name].in_shapes[0], 0)


@pytest.mark.parametrize("name", ["in_shape", "num_classes", "seed", "name"])
def test_what_a_run_sets_itself_is_not_an_argument_of_the_network(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown argument of mlp '{name}'"):
        check_args("mlp", {name: 3})


def test_a_list_as_files_write_it_makes_the_same_network_as_a_tuple() -> None:
    """JSON and TOML have lists only."""
    for name, given in (("mlp", {"hidden": (8,)}), ("cnn5", {"channels": (4, 8), "hidden": (16,)})):
        tuples = build(name, MODELS[name].in_shapes[0], 10, 5, **given)
        lists = build(name, MODELS[name].in_shapes[0], 10, 5, **{key: [*one] for key, one in given.items()})
        for one, other in zip(tuples.parameters(), lists.parameters(), strict=True):
            assert torch.equal(one, other)


def test_the_earlier_function_for_defaults_still_answers_and_names_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="declared_args"):
        found = accepted_args("mlp")
    assert {name: value for name, value in found.items() if name not in EVERYWHERE} == {
        "hidden": (64, 64),
        "head_bias": True,
        "projection": 0,
        "projection_hidden": 0,
    }
