"""A message about training that has diverged names the arguments of the method itself, beside the
learning rate.
"""

from __future__ import annotations

import inspect

import pytest

import raffed
from raffed.core.divergence import explained
from raffed.errors import NumericsError
from raffed.methods import METHODS, STRENGTHS, build_method
from tests.runtime.conftest import small


@pytest.mark.parametrize("name", STRENGTHS)
def test_they_are_numbers_that_the_factory_takes_and_a_value_given_is_the_one_named(name: str) -> None:
    known = inspect.signature(METHODS[name].load()).parameters
    assert all(type(known[key].default) is float for key in STRENGTHS[name])
    first = STRENGTHS[name][0]
    method = build_method(name, {first: 0.0625})
    said = f"too large; or a smaller coefficient of .*'s own: {first} = 0.0625"
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
    with pytest.raises(NumericsError, match=r"FedMR's own: mu1 = 1e\+06, mu2 = 0\.1"):
        raffed.run(raffed.RunConfig.from_dict(wild))
