"""Parameters of which `make test` takes a part. CI takes all of them (the mark `more`)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def one_in(step: int, values: Iterable[object]) -> list[object]:
    """Return the values for `parametrize`, with the mark `more` on all but every `step`-th one.

    A sentence that holds for all methods, files or commands is tested for some of them in the minutes that
    `make test` has, and for every one of them by CI.
    """
    return [value if place % step == 0 else _more(value) for place, value in enumerate(values)]


def _more(value: object) -> object:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.more], id=value.id)
    return (
        pytest.param(*value, marks=pytest.mark.more)
        if isinstance(value, tuple)
        else pytest.param(value, marks=pytest.mark.more)
    )
