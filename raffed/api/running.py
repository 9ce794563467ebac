"""Runs that may have been begun before: start them, or continue them from their folders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.errors import RunFolderError

if TYPE_CHECKING:
    from raffed.runs.result import RunResult
    from raffed.runs.run import RoundWatcher, Stop

Begun = Callable[[], None]
PLACED = ("execution", "actors", "clients_per_actor", "gpu_fraction")  # of [runtime]: how clients are placed


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

    @property
    def method(self) -> str:
        """Its method, as its events name it."""
        return str(self.about["method"])

    @property
    def finished(self) -> bool:
        """Whether the folder holds the finished run."""
        from raffed.results.runfile import read_run

        return holds_run(self.folder) and read_run(self.folder).get("state") == "finished"


def start_or_continue(
    config: RunConfig,
    folder: Path,
    watch: RoundWatcher,
    stop: Stop | None = None,
    begun: Begun | None = None,
    accept: bool = False,
) -> RunResult:
    """Execute a run, or what is left of it if its folder holds a part.

    The arguments are those of `run`; `accept` says whether own code may have changed since it was begun.
    """
    from raffed.runs.run import resume, run

    if holds_run(folder):
        return resume(
            folder,
            watch=watch,
            stop=stop,
            runtime=config.runtime,
            begun=begun,
            accept_changed_code=accept,
        )
    return run(config, folder, watch=watch, stop=stop, begun=begun)


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, begun or finished."""
    from raffed.results.runfile import RUN_FILE  # imported late because it loads pyarrow

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
    from raffed.results.runfile import read_run
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
    if config.runtime.execution != "ray":
        yield
        return
    from raffed.runtime.ray.session import RaySession

    prepare_run(config)
    with RaySession(config.runtime.address) as session:
        session.wait()
        yield


__all__ = ["PLACED", "Run", "check_continues", "holds_run", "one_ray", "start_or_continue"]
