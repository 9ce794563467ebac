"""Execute the rounds of a run on a backend, and record how they end.

This happens in the process of the command, or in the driver actor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from raffed.errors import RaffedError, RunFolderError
from raffed.results.command_line import command_line, work_for
from raffed.results.lock import held, this_process
from raffed.results.runfile import RUN_FILE
from raffed.runs.events import RoundEvent
from raffed.runs.federation import RoundLoop
from raffed.runs.folder import RunFolder
from raffed.runs.folder_place import of_folder, written
from raffed.runs.hashes import weights_sha256
from raffed.runtime.api import Backend
from raffed.runtime.setup import Setup

log = logging.getLogger(__name__)
Stop = Callable[[], bool]


class Asker(NamedTuple):
    """The process for which another one conducts a run.

    Attributes:
        process: What holds the run's folder, as messages name it.
        command: The command that was typed; empty if there is none.
    """

    process: str
    command: str


def this_asker() -> Asker:
    """Return this process as one that asks another one to conduct a run."""
    return Asker(this_process(), command_line())


def conduct_at(
    setup: Setup, path: Path, resumed: bool, runtime: Backend, stop: Stop, asker: Asker | None = None
) -> Iterator[RoundEvent]:
    """Open the run's folder and execute the rounds on a backend, in this process or in the driver actor.

    The folder is locked meanwhile, for this process or for the one that has asked for the run.
    """
    if asker is not None:
        work_for(asker.command)
    with closing(runtime), held(path, asker.process if asker else None), written(path):
        folder = RunFolder(path, setup, resume=resumed and (path / RUN_FILE).exists())
        yield from conduct(setup, folder, runtime, stop)


def conduct(setup: Setup, folder: RunFolder, runtime: Backend, stop: Stop) -> Iterator[RoundEvent]:
    """Execute the rounds on a backend and write into run.json how they ended."""
    try:
        with written(folder.path):
            folder.note_placement(runtime.placement())
            loop = RoundLoop(setup, runtime, folder)
            yield from loop.rounds(stop)
            _close(loop)
    except (KeyboardInterrupt, GeneratorExit):
        _ended(folder, "stopped", "interrupted")
        raise
    except RaffedError as error:
        _ended(folder, "failed", str(error))
        if isinstance(error, RunFolderError):  # not a refused request: the run had begun and could not go on
            raise RaffedError(str(error)) from error
        raise
    except BaseException as error:
        _ended(folder, "failed", f"{type(error).__name__}: {error}")
        raise


def _close(loop: RoundLoop) -> None:
    """Write into run.json that the run is finished, or that it was stopped."""
    folder, backend = loop.folder, loop.runtime
    if not loop.over:
        folder.end("stopped", None)
        return
    digests = backend.client_state_digests(loop.versions)
    folder.note_placement(backend.placement())
    hashes, best = loop.round_hashes, loop.validation.kept
    folder.finish(loop.server, weights_sha256(loop.state), digests, hashes, best, loop.ended_early)


def _ended(folder: RunFolder, state: str, error: str) -> None:
    """Write down how a run ended. If that fails too, only log it, so that the first error is reported."""
    try:
        folder.end(state, error)
    except OSError as second:
        level = logging.INFO if of_folder(second) else logging.WARNING
        log.log(level, "%s: its state could not be put down: %s", folder.path, second)
