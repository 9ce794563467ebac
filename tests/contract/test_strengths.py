"""A message about training that has diverged names the arguments of the method itself, beside the
learning rate.
"""

from __future__ import annotations

import pytest

import raffed
from raffed.config.validation import Declaration, declarations
from raffed.core.round import explained
from raffed.errors import NumericsError
from raffed.methods import METHODS, build_method
from tests.runtime.conftest import small


def strengths(name: str) -> list[Declaration]:
    """The arguments of a method that are marked as coefficients of its own."""
    return [one for one in declarations(METHODS[name].load()).values() if one.strength]


def test_they_are_numbers_and_a_value_given_is_the_one_named() -> None:
    marked = {name: strengths(name) for name in METHODS if strengths(name)}
    assert len(marked) >= 29
    for name, (first, *others) in marked.items():
        assert {one.kind for one in (first, *others)} == {"float"}
        method = build_method(name, {first.name: 0.0625})
        said = f"too large; or a smaller value of .*'s own coefficients: {first.name} = 0.0625"
        with pytest.raises(NumericsError, match=said), explained(method):
            raise NumericsError("too large")


def test_a_coefficient_of_0_and_a_method_without_any_are_not_spoken_of() -> None:
    assert build_method("fedmr", {"mu2": 0.0}).strengths == (("mu1", 0.01),)
    with pytest.raises(NumericsError) as error, explained(build_method("fedavg")):
        raise NumericsError("too large")
    assert str(error.value) == "too large"


def test_a_run_that_diverges_names_them() -> None:
    config = small("fedmr", 2)
    wild = {**config.as_dict(), "args": {"mu1": 1e6}, "local": {**config.as_dict()["local"], "lr": 10.0}}
    with pytest.raises(NumericsError, match=r"FedMR's own coefficients: mu1 = 1e\+06, mu2 = 0\.1"):
        raffed.run(raffed.RunConfig.from_dict(wild))
