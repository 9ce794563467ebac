"""Every method can be tuned: it has a search space, and the space speaks the language of its factory."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from raffed.tune_spaces import load_space, points, values

from raffed.errors import UsageError
from raffed.methods import METHODS, build_method
from tests.tiny import over_methods

FOLDER = Path(__file__).parents[2] / "tune_spaces"


@over_methods
def test_every_method_has_a_space_whose_every_point_its_factory_takes(name: str) -> None:
    space = load_space(name)
    every = points(space)
    assert len(every) >= 1
    assert set(space) <= set(inspect.signature(METHODS[name].load()).parameters)
    for point in every:
        build_method(name, point)


@over_methods
def test_a_space_says_where_its_values_come_from_and_tries_each_once(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert text.startswith('"""')
    space = load_space(name)
    for keyword in space:
        assert len(values(space, keyword)) == len(set(map(repr, values(space, keyword)))) >= 2


def test_a_missing_space_names_the_file_to_write() -> None:
    with pytest.raises(
        UsageError,
        match=r"--grid .*, or write tune_spaces/fednew\.py with SPACE = \{keyword: \[values\]\} and",
    ):
        load_space("fednew")
