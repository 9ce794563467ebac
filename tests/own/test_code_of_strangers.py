"""A run's folder may come from a stranger, and so may what it names: nothing of it runs unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import raffed
from raffed.core.training.rates import schedule_of
from raffed.data.own_data import load_own
from raffed.errors import RaffedError, UsageError
from raffed.federation.selection import own_selection
from raffed.methods import build_method
from raffed.models.own.factories import factory_of


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:run", "shutil:rmtree", "builtins:exec", "numpy:save"]
)
def test_no_function_of_python_or_a_library_is_called_because_a_name_says_so(name: str, lab: Path) -> None:
    with pytest.raises(UsageError):
        build_method(name, {})
    with pytest.raises(UsageError):
        factory_of(name)
    with pytest.raises(RaffedError):
        load_own(name)
    with pytest.raises(UsageError):
        own_selection(name)
    with pytest.raises(UsageError):
        schedule_of(raffed.Local(schedule=name))
    assert os.listdir(lab) == ["prox.py"]
