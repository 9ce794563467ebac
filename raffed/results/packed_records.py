"""Packed records: many runs in two files, which only `raffed report` reads as they are."""

from __future__ import annotations

from pathlib import Path

from raffed.errors import RunFolderError

RECORDS_FILE = "records.json"


def check_unpacked(folder: Path) -> None:
    """Raise a RunFolderError if a folder, or a folder directly inside it, holds packed records.

    Commands that read or continue runs call it, because to them packed records look like an empty folder.
    """
    inside = (path.parent for path in sorted(folder.glob(f"*/{RECORDS_FILE}")))
    for place in (folder, *inside):
        if (place / RECORDS_FILE).is_file():
            raise RunFolderError(
                f"{place}: these are packed records, which only `raffed report` can read; unpack them "
                f"first: python -m raffed.reproductions.pages.pack_records --unpack {place} --out NEW_FOLDER"
            )
