"""What Python functions show of their work: lines on stderr in a script, one changing line in a notebook."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from raffed.results.visible import visible

if TYPE_CHECKING:
    from raffed.experiments.events import RoundEvent

SECONDS = 5.0  # between two lines of a script about rounds
Show = Callable[[str], None]


def measured(event: RoundEvent, short: bool = False) -> str:
    """Return the loss, and the accuracies if this round measured them."""
    names = ("agg", "pers") if short else ("aggregation", "personalization")
    parts = [f"loss {event.loss:.4g}"]
    for name, value in zip(names, (event.accuracy, event.personal), strict=True):
        if value is not None and not math.isnan(value):
            parts.append(f"{name} {100 * value:.1f} %")
        elif value is not None:
            parts.append(f"{name} –")
    return "  ".join(parts)


class CommandProgress:
    """Shows nothing. The other kinds are based on it."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def begin(self, title: str) -> None:
        """Show that a run or a search begins."""

    def round(self, event: RoundEvent) -> None:
        """Show that a round is done."""


class Lines(CommandProgress):
    """Writes lines to stderr: the first and the last round of a run, and one every few seconds between."""

    def __init__(self) -> None:
        self._shown = 0.0

    def say(self, text: str) -> None:
        print(visible(text), file=sys.stderr, flush=True)

    def begin(self, title: str) -> None:
        self._shown = 0.0
        self.say(title)

    def round(self, event: RoundEvent) -> None:
        now = time.monotonic()
        if event.round in (1, event.rounds) or now - self._shown > SECONDS:
            self._shown = now
            self.say(f"round {event.round}/{event.rounds}  {measured(event)}")


class Notebook(Lines):
    """Keeps one line below the cell up to date. Lines that stay go to stderr, as in a script."""

    def __init__(self, show: Callable[[], Show]) -> None:
        super().__init__()
        self._make, self._show = show, show()

    def begin(self, title: str) -> None:
        self._show = self._make()
        self._show(visible(title))

    def round(self, event: RoundEvent) -> None:
        self._show(f"round {event.round}/{event.rounds}  {measured(event)}")


def make_progress(wanted: bool) -> CommandProgress:
    """Return the kind of progress for the place where this process runs.

    Args:
        wanted: Whether anything is shown at all.
    """
    if not wanted:
        return CommandProgress()
    return Notebook(_displayed) if _in_notebook() else Lines()


def _in_notebook() -> bool:
    """Return whether a Jupyter kernel executes this process. The terminal's IPython is a script here."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


def _displayed() -> Show:
    from IPython.display import display

    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


__all__ = ["CommandProgress", "Lines", "Notebook", "make_progress", "measured"]
