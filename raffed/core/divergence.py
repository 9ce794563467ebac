"""Advice for a training that has diverged, based on the arguments of the method that was used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from raffed.core.method import Method
from raffed.errors import NumericsError


@contextlib.contextmanager
def explained(m: Method) -> Iterator[None]:
    """Add the method's own coefficients to the message of a NumericsError that is raised in the body."""
    try:
        yield
    except NumericsError as error:
        if not m.strengths:
            raise
        own = ", ".join(f"{name} = {value:g}" for name, value in m.strengths)
        raise NumericsError(f"{error}; or a smaller value of {m.name}'s own coefficients: {own}") from error
