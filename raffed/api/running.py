"""Start runs, or continue them from their folders, and show what happens while they execute.

Functions are called after rounds, and compared methods are named. Everything that happens is an event, and
what shows events is a renderer. Here are the renderers of Python functions: lines on stderr in a script, one
changing line in a notebook. Those of the command line are in raffed/cli/screen.py.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.validation import Value
from raffed.errors import RunFolderError, UsageError
from raffed.methods.authors import is_authors
from raffed.own.resolve import load
from raffed.own.user_code import user_errors
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.storage import named
from raffed.results.text import tell, visible

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent
    from raffed.runs.run import Begun, RoundWatcher, RunResult, Stop
    from raffed.search.request import Request


# Functions of one's own that are called after every round: `--on-round ./watch.py:show`.


def callback(reference: str) -> RoundWatcher:
    """Return a function that receives the `RoundEvent` of each round, in the process of the command.

    An error that it raises ends the run after that round, which can be resumed. The message begins
    with the file and line in the user's code.

    Args:
        reference: A reference such as "./watch.py:show".

    Raises:
        UsageError: There is no such function.
        UserCodeError: The file raised an error while it was imported.
    """
    call: object = load(reference)
    if not callable(call):
        raise UsageError(f"{reference} is a {type(call).__name__}; it must be a function of a RoundEvent")

    return user_errors(reference)(call)


# Methods that are compared, each with the settings by which it may stand more than once in one table.


_NEXT = re.compile(r",(?=\s*[A-Za-z_][\w.]*\s*=)")  # a comma before NAME=


class ComparedMethod(NamedTuple):
    """A method, and arguments that it has here only.

    Attributes:
        method: Its name or reference.
        args: Its arguments here. Empty if the method is compared as it is.
    """

    method: str
    args: Mapping[str, Value]

    @property
    def label(self) -> str:
        """What distinguishes it from the others, such as "fedprox,mu=0.1". It also names the folder."""
        return ",".join([self.method, *(f"{name}={_spelt(value)}" for name, value in self.args.items())])


def separated(text: str) -> tuple[str, list[str]]:
    """Return the method and the settings of a text: "fedprox,mu=0.1" → "fedprox" and ["mu=0.1"]."""
    method, *settings = _NEXT.split(text)
    return method.strip(), [setting.strip() for setting in settings]


def by_label(methods: Iterable[ComparedMethod]) -> dict[str, ComparedMethod]:
    """Return label → method.

    Raises:
        UsageError: Two methods have the same label.
    """
    labelled: dict[str, ComparedMethod] = {}
    for method in methods:
        if method.label in labelled:
            raise UsageError(
                f"{method.label} is given twice, and the second run would be the first again; leave one out, "
                f"or give each its settings, as in {method.method},NAME=VALUE"
            )
        labelled[method.label] = method
    return labelled


def _spelt(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as in TOML
    if isinstance(value, list | tuple):
        return f"[{', '.join(_spelt(entry) for entry in value)}]"
    return str(value)


PLACED = ("execution", "actors", "clients_per_actor", "gpu_fraction")  # of [runtime]: how clients are placed


def is_usual(runtime: Runtime) -> bool:
    """Return whether nothing says how clients are placed."""
    return all(getattr(runtime, name) == getattr(Runtime(), name) for name in PLACED)


@dataclass(frozen=True, eq=False)  # a key of tables, each as itself
class Run:
    """A run that a command executes, alone or as one of several.

    Attributes:
        title: What it is among the others, such as "fedavg, seed 3".
        config: Its configuration.
        folder: Its folder.
        about: What its events say of it: its method and, if others differ in that, its seed.
        accept: Whether own code may have changed since the run was begun.
    """

    title: str
    config: RunConfig
    folder: Path
    about: Mapping[str, str | int]
    accept: bool = False

    @staticmethod
    def alone(config: RunConfig, folder: Path) -> Run:
        """Return a run that is not one of several."""
        return Run("", config, folder, {"method": config.method})

    @property
    def method(self) -> str:
        """Its method, as its events name it."""
        return str(self.about["method"])

    @property
    def finished(self) -> bool:
        """Whether the folder holds the finished run."""
        return holds_run(self.folder) and read_run(self.folder).get("state") == "finished"

    def go_on(self, watch: RoundWatcher, stop: Stop | None = None, begun: Begun | None = None) -> RunResult:
        """Execute the run, or what is left of it if its folder holds a part.

        The arguments are those of `raffed.run`.
        """
        from raffed.runs.run import resume, run

        if not holds_run(self.folder):
            return run(self.config, self.folder, watch=watch, stop=stop, begun=begun)
        return resume(
            self.folder,
            watch=watch,
            stop=stop,
            runtime=self.config.runtime,
            begun=begun,
            accept_changed_code=self.accept,
        )


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, begun or finished."""
    return (folder / RUN_FILE).exists()


def check_continues(folder: Path, config: RunConfig, accept: bool = False) -> None:
    """Check that a folder is new, or holds the same run, which is then kept or continued.

    Args:
        folder: The folder.
        config: The run that it is for.
        accept: Whether own code may have changed since the run was begun. Otherwise a run that was made with
            earlier code is refused even if it is finished, because it would stand beside runs of the new one.

    Raises:
        RunFolderError: The folder holds another run, or one with other code. The message names the file.
    """
    from raffed.runs.code_record import check_code

    if not holds_run(folder):
        return
    about = read_run(folder)
    if about.get("identity") != config.identity():
        raise RunFolderError(f"{folder} holds a run with another configuration; choose another --out")
    check_code(folder, about, config, accept)


@contextlib.contextmanager
def one_ray(config: RunConfig, folder: Path, recorded: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Start Ray once for all that the block executes. What it refuses of a run is refused before the block.

    Args:
        config: The run, or the first one.
        folder: Its folder, in which nothing is changed.
        recorded: What run.json holds of the run whose data it must have; None for a new run.
    """
    from raffed.runtime.setup import prepare_run

    check_set(config.numerics.bits)
    if config.runtime.execution != "ray" or is_authors(config.method):
        yield
        return
    from raffed.runtime.ray.session import RaySession

    setup = prepare_run(config, recorded=recorded)
    with RaySession(config.runtime.address) as session:
        session.wait()
        from raffed.runtime.ray.launch import plan_of

        plan_of(setup, folder)
        yield


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
