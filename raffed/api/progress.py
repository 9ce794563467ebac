"""What is shown of runs and searches while they execute.

Everything that happens is an event, and what shows events is a renderer. Here are the renderers of Python
functions: lines on stderr in a script, one changing line in a notebook. Those of the command line are in
raffed/cli/screen.py.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from raffed.results.storage import named
from raffed.results.text import tell, visible

if TYPE_CHECKING:
    from raffed.api.running import Run
    from raffed.runs.events import RoundEvent
    from raffed.runs.run import RunResult
    from raffed.search.request import Request

SECONDS = 5.0  # between two lines of a script about rounds
Event: TypeAlias = Mapping[str, Any]  # what `--json` prints, as docs/programs.md describes it


def measured(event: Event, short: bool = False) -> str:
    """Return the loss of a round, and the accuracies if it measured them."""
    loss = event["loss"]
    parts = [f"loss {math.nan if loss is None else loss:.4g}"]
    names = ("agg", "pers") if short else ("aggregation", "personalization")
    for name, key in zip(names, ("accuracy", "personal"), strict=True):
        value = event.get(key)
        if value is not None:
            parts.append(f"{name} –" if math.isnan(value) else f"{name} {100 * value:.1f} %")
    return "  ".join(parts)


def finished_event(about: Event, result: RunResult) -> Event:
    """Return the event of a run that came to its end. `about` are its method, and its seed if it has one."""
    return {
        "event": "finished",
        **about,
        "folder": named(result.folder or ""),
        "hashes": result.hashes,
        "accuracy": result.accuracy,
        "personalization": result.personalization,
        "accuracy_best": result.accuracy_best[0],
        "personalization_by_samples": result.personalization_by_samples[0],
        **({"ended_early": result.ended_early} if result.ended_early else {}),
        **({} if result.best_round is None else {"best_round": result.best_round}),
    }


class Shown:
    """Shows nothing. A renderer has a method on_KIND for each kind of event that it shows."""

    def show(self, event: Event, **more: Any) -> None:
        """Show an event.

        Args:
            event: What happened. Its kind is under "event".
            **more: What only people are shown. If several runs execute at the same time, `run` is the one
                of which the event speaks.
        """
        shown = getattr(self, f"on_{event['event']}", None)
        if shown is not None:
            shown(event, **more)

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def on_said(self, event: Event, run: Run) -> None:
        self.say(event["text"])

    def on_warning(self, event: Event, run: Run, first: bool) -> None:
        if first:
            self.say(event["text"])

    def begin(self, title: str) -> None:
        """Show that a run begins."""
        self.show({"event": "begin", "title": title})

    def round(self, event: RoundEvent) -> None:
        """Show that a round is done. This is a watcher of a run."""
        self.show({"event": "round", **event.as_dict()})


class Lines(Shown):
    """Writes lines to stderr: the first and the last round of a run, and one every few seconds between."""

    def __init__(self) -> None:
        self._shown = 0.0

    def say(self, text: str) -> None:
        tell(text, error=True)

    def on_begin(self, event: Event, run: Run | None = None) -> None:
        self._shown = 0.0
        self.say(event["title"])

    def on_round(self, event: Event, run: Run | None = None) -> None:
        now = time.monotonic()
        if run is None and (event["round"] in (1, event["rounds"]) or now - self._shown > SECONDS):
            self._shown = now
            self.say(f"round {event['round']}/{event['rounds']}  {measured(event)}")

    def on_finished(self, event: Event, run: Run) -> None:
        accuracy = event["accuracy"]
        text = "–" if accuracy is None else f"{100 * accuracy:.1f} %"
        self.say(f"{run.title}: finished, accuracy {text}")

    def on_failed(self, event: Event, run: Run | None = None) -> None:
        self.say(f"{event['method'] if run is None else run.title}: {event['message']}")

    def on_tune(self, event: Event, request: Request) -> None:
        self.begin(f"tune {', '.join(request.methods)} → {event['folder']}")

    def on_trial(self, event: Event, **more: object) -> None:
        if event["state"] != "running":
            score = "" if event["score"] is None else f"  score {100 * event['score']:.1f} %"
            self.say(f"{event['method']}  {event['name']}  {event['state']}{score}  {event['seconds']:.0f} s")

    def on_tuned(self, event: Event, **more: object) -> None:
        self.say(f"tune: {event['state']}")


class Notebook(Lines):
    """Keeps one line below the cell up to date. Lines that stay go to stderr, as in a script."""

    def __init__(self) -> None:
        super().__init__()
        self._show = _displayed()

    def on_begin(self, event: Event, run: Run | None = None) -> None:
        if run is None:
            self._show = _displayed()
            self._show(visible(event["title"]))
        else:
            super().on_begin(event, run)

    def on_round(self, event: Event, run: Run | None = None) -> None:
        if run is None:
            self._show(f"round {event['round']}/{event['rounds']}  {measured(event)}")


def make_progress(wanted: bool | Shown) -> Shown:
    """Return the renderer for the place where this process runs.

    Args:
        wanted: Whether anything is shown at all; or the renderer itself.
    """
    if isinstance(wanted, Shown):
        return wanted
    if not wanted:
        return Shown()
    # A Jupyter kernel executes this process. The terminal's IPython is a script here
    return Notebook() if {"ipykernel", "IPython"} <= sys.modules.keys() else Lines()


def _displayed() -> Callable[[str], None]:
    from IPython.display import display

    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)
