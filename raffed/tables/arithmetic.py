"""Tables whose runs compute in another way: in stacks, with other bits, or with other convolutions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from raffed.config.portable import PORTABLE
from raffed.config.run import Numerics, RunConfig, Runtime
from raffed.errors import RunFolderError, UsageError, check_choice
from raffed.results.runfile import RUN_FILE, read_run
from raffed.tables.items import Item

FINISHED = "finished"


def computed(
    item: Item, cohort: int | None = None, bits: str | None = None, convolutions: str | None = None
) -> Item:
    """Return an item all of whose runs compute in this way. None leaves what the table says.

    Args:
        item: A table. Its studies do not change.
        cohort: Most clients that are stacked and stepped together; 0: one client after the other.
        bits: "machine", or "portable" for bits that hold on other processors too.
        convolutions: "torch", or "compiled" for raffed's own kernel.

    Raises:
        UsageError: A value does not exist, or the item is a study only, which has no runs that could change.
    """
    if bits is not None:
        check_choice("numerics.bits", bits, ("machine", PORTABLE))
    if convolutions is not None:
        check_choice("numerics.convolutions", convolutions, ("torch", "compiled"))
    changes: dict[str, Any] = {
        field: value
        for field, value in (("cohort", cohort), ("bits", bits), ("convolutions", convolutions))
        if value is not None
    }
    if not item.cells:
        for field, value in changes.items():
            if value != getattr(Numerics(), field):
                raise UsageError(
                    f"numerics.{field} = {value!r} has no effect on {item.key}, which is a study without "
                    "runs; leave it out"
                )
    configs = [replace(cell.config, numerics=replace(cell.config.numerics, **changes)) for cell in item.cells]
    cells = zip(item.cells, configs, strict=True)
    return replace(item, cells=tuple(replace(cell, config=config) for cell, config in cells))


def finished_otherwise(config: RunConfig, there: Iterable[Path]) -> Path | None:
    """Return a finished run of the same settings that was computed in another way.

    Such a run differs by rounding only, because it trained in stacks of another size, on a GPU, with more
    threads, with bits that hold on other processors, or with other convolutions. So a table can be begun on
    one machine and go on at another.

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


def _plain(config: RunConfig) -> RunConfig:
    """Return the same run, one client after the other on a core of the CPU, as torch computes it there."""
    plain = replace(config.numerics, cohort=0, bits="machine", convolutions="torch")
    return replace(config, numerics=plain, runtime=Runtime())
