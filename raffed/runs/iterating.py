"""`raffed.iterate`: a run round by round, in a loop of the caller's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.results.storage import is_url, local_folder
from raffed.runs.checks import check_here
from raffed.runs.result import RunResult, result_there
from raffed.runs.run import run_events

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent


def iterate(config: RunConfig, out: Path | str | None = None) -> Generator[RoundEvent, None, RunResult]:
    """Execute a run and give the caller each round as soon as it is done.

    Leaving the loop early, or closing the generator, stops the run: a checkpoint is written, run.json says
    `stopped`, and `raffed.resume(out)` continues to the same bits.

    Args:
        config: Method, data set, split, network, settings and seed.
        out: A new folder, or a URL, for the run's files. With None nothing is kept, and a run that was left
            early cannot be resumed.

    Returns:
        A generator of `RoundEvent`, one for each round. Its return value is the `RunResult`.

    Raises:
        UsageError: A setting is not possible, or the folder cannot be used. A name that does not exist is
            refused at once, everything else when the first round is asked for.
        NumericsError, ActorsLostError, ActorStartError: As in `raffed.run`.

    Example:
        >>> for event in raffed.iterate(raffed.RunConfig(method="map")):  # doctest: +SKIP
        ...     print(event.round, event.accuracy)
        ...     if (event.accuracy or 0) > 0.9:
        ...         break
    """
    check_here(config)
    return _rounds(config, out)


def _rounds(config: RunConfig, out: Path | str | None) -> Generator[RoundEvent, None, RunResult]:
    with local_folder(out) as path:
        here = path.absolute()  # absolute, because the caller may change its working folder between rounds
        with closing(run_events(config, here)) as events:
            yield from events
        return result_there(here, None if out is None or is_url(out) else path)


__all__ = ["iterate"]
