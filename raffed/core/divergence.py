"""What to do about a training that has diverged, by the arguments of the method that was used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from raffed.core.method import Method
from raffed.errors import NumericsError


@contextlib.contextmanager
def explained(m: Method) -> Iterator[None]:
    """In the body, an error of numbers that have become too large also names the method's own
    coefficients.
    """
    try:
        yield
    except NumericsError as error:
        if not m.strengths:
            raise
        own = ", ".join(f"{name} = {value:g}" for name, value in m.strengths)
        raise NumericsError(f"{error}; or a smaller coefficient of {m.name}'s own: {own}") from error
