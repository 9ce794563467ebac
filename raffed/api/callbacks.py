"""Functions of one's own that are called after every round: `--on-round ./watch.py:show`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.own.user_code import user_errors

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent
    from raffed.runs.run import RoundWatcher


def callbacks(references: Sequence[str]) -> list[RoundWatcher]:
    """Return functions that receive the `RoundEvent` of each round, in the process of the command.

    An error that one of them raises ends the run after that round, which can be resumed. The message begins
    with the file and line in the user's code.

    Args:
        references: References such as "./watch.py:show".

    Raises:
        UsageError: There is no such function.
        UserCodeError: The file raised an error while it was imported.
    """
    return [_callback(one) for one in references]


def _callback(reference: str) -> RoundWatcher:
    found = load(reference)
    if not callable(found):
        raise UsageError(f"{reference} is a {type(found).__name__}; it must be a function of a RoundEvent")
    call: Callable[[RoundEvent], None] = found

    def called(event: RoundEvent) -> None:
        with user_errors(reference):
            call(event)

    return called


__all__ = ["callbacks"]
