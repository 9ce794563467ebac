"""The files that describe a table of one's own, in item.json, and whether they have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from raffed.config.validation import Json
from raffed.errors import RunFolderError
from raffed.own.located import Sources
from raffed.results.run_contents import Noted
from raffed.results.runfile import read_object, read_run
from raffed.runs.code_record import check_code
from raffed.runtime.own_code import references_in
from raffed.tables.items import Item
from raffed.tables.planner import ITEM_FILE, Planned, PlannedRun


def item_folder(item: Item, scale: str, out: Path) -> Path:
    """Return the folder of an item's tables and report."""
    return out / item.paper / item.name / scale


def source_record(item: Item, folder: Path) -> Noted:
    """Return what item.json says about the files that describe the table, and what has changed in them.

    Args:
        item: The table. One of raffed's own papers has no such files.
        folder: The folder of its item.json, which may have been written before.
    """
    if item.source is None:
        return {}
    now = item.source
    record: Noted = {"reference": now.reference, "package": now.package, "files": dict(now.files)}
    earlier = _known(folder).get("accepted_changes")
    changes: list[Json] = [*earlier] if isinstance(earlier, list) else []
    changes += _changes(_files(folder) or now.files, now)
    return {"source": record, **({"accepted_changes": changes} if changes else {})}


def check_source(item: Item, scale: str, out: Path) -> None:
    """Refuse to go on with a table whose files have changed since its item.json was written.

    Raises:
        RunFolderError: They have. The message names them.
    """
    if item.source is None:
        return
    folder = item_folder(item, scale, out)
    names = [str(one["file"]) for one in _changes(_files(folder) or item.source.files, item.source)]
    if names:
        raise RunFolderError(
            f"{folder / ITEM_FILE}: {', '.join(names)} changed since this table was begun with "
            f"{item.source.reference}; choose another --out, or go on with --accept-changed-code, which "
            f"item.json records"
        )


def check_code_of(jobs: Sequence[Planned]) -> None:
    """Refuse finished runs whose own code has changed, since a table would mix two versions of it.

    Raises:
        RunFolderError: A run was made with other code than there is now. The message names the file.
    """
    for job in jobs:
        if isinstance(job, PlannedRun) and references_in(job.config) and job.done:
            check_code(job.folder, read_run(job.folder), job.config, accept=False)


def _known(folder: Path) -> dict[str, Json]:
    return read_object(folder, ITEM_FILE) if (folder / ITEM_FILE).exists() else {}


def _files(folder: Path) -> dict[str, str]:
    """Return the files that item.json names, with their hashes; empty if there are none."""
    source = _known(folder).get("source")
    files = source.get("files") if isinstance(source, dict) else None
    return {name: str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def _changes(before: Mapping[str, str], now: Sources) -> list[dict[str, Json]]:
    names = sorted(before.keys() | now.files.keys())
    return [
        {"file": name, "from": before.get(name, ""), "to": now.files.get(name, "")}
        for name in names
        if before.get(name) != now.files.get(name)
    ]


__all__ = ["ITEM_FILE", "check_code_of", "check_source", "item_folder", "source_record"]
