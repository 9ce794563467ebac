"""Tables whose runs compute in another way: in stacks, or with bits that hold on other processors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from raffed.config.portable import PORTABLE
from raffed.config.run import Numerics, RunConfig, Runtime
from raffed.errors import RunFolderError, UsageError, check_choice
from raffed.experiments.reproduction.items import Item
from raffed.results.runfile import RUN_FILE, read_run

FINISHED = "finished"


def in_stacks(item: Item, cohort: int) -> Item:
    """Return an item all of whose runs train their clients in stacks.

    Args:
        item: A table. Its studies do not change.
        cohort: Most clients that are stepped together; 0: one client after the other.

    Raises:
        UsageError: The item is a study only, which trains no clients in stacks.
    """
    if cohort and not item.cells:
        raise UsageError(f"--cohort {cohort} has no effect on {item.key}, which is a study without runs")
    return _changed(item, lambda before: replace(before, cohort=cohort))


def in_bits(item: Item, bits: str) -> Item:
    """Return an item all of whose runs have these bits: "machine" or "portable".

    Raises:
        UsageError: There are no such bits, or the item is a study only, whose bits are the machine's.
    """
    portable = check_choice("numerics.bits", bits, ("machine", PORTABLE)) == PORTABLE
    if portable and not item.cells:
        raise UsageError(f"--numerics {bits} has no effect on {item.key}, which is a study without runs")
    return _changed(item, lambda before: replace(before, bits="portable" if portable else "machine"))


def finished_otherwise(config: RunConfig, there: Iterable[Path]) -> Path | None:
    """Return a finished run of the same settings that was computed in another way.

    Such a run differs by rounding only, because it trained in stacks of another size, on a GPU, with more
    threads, or with bits that hold on other processors. So a table can be begun on one machine and go on at
    another.

    Args:
        config: The run that is asked for.
        there: Folders that may hold it.
    """
    wanted = _plain(config).identity()
    return next((folder for folder in there if _finished_as(folder) == wanted), None)


def _finished_as(folder: Path) -> str:
    """Return the identity that a finished run would have on a core of the CPU; "" if there is none."""
    with contextlib.suppress(UsageError, RunFolderError):  # a damaged neighbour is not the run
        record = read_run(folder) if (folder / RUN_FILE).exists() else {}
        if record.get("state") == FINISHED:
            return _plain(RunConfig.from_dict(record["config"])).identity()
    return ""


def _changed(item: Item, change: Callable[[Numerics], Numerics]) -> Item:
    """Return an item whose runs have other numerics."""
    changed = [replace(cell.config, numerics=change(cell.config.numerics)) for cell in item.cells]
    cells = zip(item.cells, changed, strict=True)
    return replace(item, cells=tuple(replace(cell, config=config) for cell, config in cells))


def _plain(config: RunConfig) -> RunConfig:
    """Return the same run, one client after the other on a core of the CPU, with the machine's bits."""
    return replace(config, numerics=replace(config.numerics, cohort=0, bits="machine"), runtime=Runtime())
