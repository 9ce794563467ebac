"""Models and memories that have diverged: they are found in the round in which they do, with advice.

What is looked for is a weight that is not finite, and NaN in any other number that somebody remembers.
Infinity may be meant there, as in the best loss so far, and so may −∞ as the logarithm of 0.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from raffed.core.ingredients.results import is_raffeds
from raffed.core.messages import ClientState, ServerState
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.record import Record, fields_of
from raffed.errors import NumericsError
from raffed.own.user_code import place_of

KEPT = "the rounds before are kept: try a smaller lr, or clip_norm"


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


def check_client(m: Method, state: ClientState, client: int, round: int) -> None:
    """Check what a client keeps after its round.

    Args:
        m: The method.
        state: What it keeps.
        client: Number of the client.
        round: Number of the round, counted from 0.

    Raises:
        NumericsError: A weight that it keeps is not finite, or a memory holds NaN.
    """
    where = _diverged({"its own layers": state.v, "its own statistics": state.b, **state.slots})
    if where:
        raise NumericsError(
            f"{m.name}: what client {client} keeps after round {round + 1} has diverged ({where}); {KEPT}"
        )


def check_server(m: Method, state: ServerState) -> None:
    """Check the server's model and its memories after a round.

    The uploads are in the range of exact sums, so what is wrong here was made at the server.

    Args:
        m: The method.
        state: The server's state after the round.

    Raises:
        NumericsError: A weight is not finite, or a memory holds NaN.
    """
    where = _diverged({"the model": state.w, "its statistics": state.b, **state.slots})
    if where:
        raise NumericsError(
            f"{m.name}: the server's state after round {state.round} has diverged ({where}), although all "
            f"uploads were finite: {_made_by(m)}; {KEPT}"
        )


def check_evaluated(m: Method, w: Params, round: int) -> None:
    """Check the weights that a server's rule chooses for evaluation.

    Raises:
        NumericsError: A weight is not finite.
    """
    where = _diverged({"the model": w})
    if where:
        raise NumericsError(
            f"{m.name}: the weights for evaluation after round {round} have diverged ({where}): {_made_by(m)}"
        )


def _made_by(m: Method) -> str:
    kind = type(m.server)
    if is_raffeds(kind):
        return f"it is the step of the server's rule {kind.__name__} or of an ingredient's memory"
    step = f"{place_of(kind.step)}, {kind.__name__}.step"
    return f"look at {step}, and at what the ingredients remember at the server"


def _diverged(parts: Mapping[str, Any]) -> str:
    """Return where the first number that has diverged is, such as "term-Anchor.w", or ""."""
    found = [pair for name, part in parts.items() for pair in _tensors(name, part)]
    # All sums are made before the first one is read, because reading waits for a GPU
    sums = [one.sum() for _, one, _ in found]
    for (path, one, weights), total in zip(found, sums, strict=True):
        if not math.isfinite(float(total)) and bool((~one.isfinite() if weights else one.isnan()).any()):
            return path
    return ""


def _tensors(path: str, part: Any) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the tensors of floats in a record, each with its path and whether it holds weights."""
    if isinstance(part, Params):
        if part.is_flat:
            yield path, part.flat, True
        else:
            yield from ((path, one, True) for one in part.tensors.values())
    elif isinstance(part, Tensor):
        if part.is_floating_point():
            yield path, part, False
    elif isinstance(part, float):
        yield path, torch.tensor(part), False
    elif isinstance(part, Record | dict):
        inside = fields_of(part) if isinstance(part, Record) else part
        for name, one in inside.items():
            yield from _tensors(f"{path}.{name}", one)
