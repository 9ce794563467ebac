"""Factories are the only place of a method's parameters: ranges, names and types are checked there, in words.
A message about training that has diverged names those that are coefficients, beside the learning rate.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
from raffed.tune_spaces import load_space, points, values

import raffed
from raffed.config.source import described
from raffed.config.validation import Declaration, declarations
from raffed.core.method import Method
from raffed.errors import NumericsError, UsageError
from raffed.methods import METHODS, build_method
from tests.runtime.conftest import small
from tests.tiny import over_methods


def outside(one: Declaration) -> list[Any]:
    """Values that an argument does not take, by its own declaration."""
    if one.kind == "str":
        return ["no such choice", one.choices[0] + " ", 3]
    if one.range is None:
        return []
    kind: Any = int if one.kind == "int" else float
    beyond = [] if one.range.high == math.inf else [kind(one.range.high + 1)]
    open_end = [kind(one.range.low)] if one.range.open_low else []
    no_number = ["text", *([math.nan, True] if one.kind == "float" else [])]
    return [kind(one.range.low - 1), *open_end, *beyond, *no_number]


@over_methods
def test_a_value_outside_a_declaration_is_refused_by_name_however_the_factory_is_called(name: str) -> None:
    factory = METHODS[name].load()
    for one in declarations(factory).values():
        for value in outside(one):
            with pytest.raises(UsageError, match=one.name) as caught:
                build_method(name, {one.name: value})
            assert str(value) in str(caught.value)
            with pytest.raises(UsageError, match=one.name):
                factory(**{one.name: value})
        if one.range is not None:  # what lies at its ends, and a whole number for a fraction
            kind: Any = int if one.kind == "int" else float
            low = [] if one.range.open_low else [one.range.low]
            for end in (*low, *([] if one.range.high == math.inf else [one.range.high])):
                one.check(kind(end))
            if one.kind == "float" and (one.range.low < 1 <= one.range.high):
                assert build_method(name, {one.name: 1}) is not None


@over_methods
def test_a_factory_has_the_registered_title_and_declares_every_argument(name: str) -> None:
    """With a default, a meaning and a range or choices. A listing without torch reads the same."""
    info = METHODS[name]
    factory = info.load()
    made = build_method(name)
    assert isinstance(made, Method)
    assert made.name == info.title
    assert factory.__doc__
    declared = declarations(factory)
    assert set(declared) == set(inspect.signature(factory).parameters)
    for one in declared.values():
        assert one.default, one
        assert one.doc.endswith("."), one
        assert (one.range is not None) == (one.kind in ("int", "float")), one
        assert bool(one.choices) == (one.kind == "str"), one
    read = described(f"raffed.methods.{info.module}", info.factory).arguments
    assert read == list(declared.values())


def test_a_run_that_diverges_names_them() -> None:
    config = small("fedmr", 2)
    wild = {**config.as_dict(), "args": {"mu1": 1e6}, "local": {**config.as_dict()["local"], "lr": 10.0}}
    with pytest.raises(NumericsError, match=r"FedMR's own coefficients: mu1 = 1e\+06, mu2 = 0\.1"):
        raffed.run(raffed.RunConfig.from_dict(wild))


# Every method can be tuned: it has a search space, and the space speaks the language of its factory.

FOLDER = Path(__file__).parents[2] / "tune_spaces"


@over_methods
def test_every_method_has_a_space_whose_every_point_its_factory_takes_and_no_value_stands_twice(
    name: str,
) -> None:
    """Its file begins by saying where the values come from."""
    space = load_space(name)
    assert set(space) <= set(inspect.signature(METHODS[name].load()).parameters)
    for point in points(space):
        build_method(name, point)
    for keyword in space:
        assert len(values(space, keyword)) == len(set(map(repr, values(space, keyword)))) >= 2
    assert (FOLDER / f"{name}.py").read_text().startswith('"""')


def test_a_missing_space_names_the_file_to_write() -> None:
    with pytest.raises(
        UsageError,
        match=r"--grid .*, or write tune_spaces/fednew\.py with SPACE = \{keyword: \[values\]\} and",
    ):
        load_space("fednew")
