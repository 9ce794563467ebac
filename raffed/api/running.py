"""Start runs, or continue them from their folders; call functions after rounds; name compared methods."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.validation import Value
from raffed.errors import RunFolderError, UsageError
from raffed.methods.authors import is_authors
from raffed.own.resolve import load
from raffed.own.user_code import user_errors
from raffed.results.runfile import RUN_FILE, read_run

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent
    from raffed.runs.run import Begun, RoundWatcher, RunResult, Stop

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

    def called(event: RoundEvent) -> None:
        with user_errors(reference):
            call(event)

    return called


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
def one_ray(config: RunConfig) -> Iterator[None]:
    """Start Ray once for several runs. Impossible requests are refused before it starts."""
    from raffed.runtime.setup import prepare_run

    check_set(config.numerics.bits)
    if config.runtime.execution != "ray" or is_authors(config.method):
        yield
        return
    from raffed.runtime.ray.session import RaySession

    prepare_run(config)
    with RaySession(config.runtime.address) as session:
        session.wait()
        yield
