"""Is what lies in a run's folder what the run wrote there? By the hashes in run.json, before a command
relies on it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raffed.data.partition import Partition
from raffed.errors import RunFolderError, UsageError
from raffed.results.runfile import RUN_FILE
from raffed.results.tree import file_sha256
from raffed.results.writer import read_metrics, rows_sha256, rows_until

log = logging.getLogger(__name__)
PARTITION = "partition.npz"


def check_file(path: Path, name: str, files: Mapping[str, str] | None, advice: str) -> None:
    """Raise a RunFolderError unless a file below a run's folder has the bytes that run.json says. files: as
    there; None for a run of before they were written down, of which every file is taken as it is.
    """
    if files is None:
        return
    try:
        found = file_sha256(path / name)
    except OSError as error:
        raise RunFolderError(f"{path / name}: cannot be read ({error.strerror}); {advice}") from error
    if name not in files:
        raise RunFolderError(
            f"{path / name}: this run did not write it, {RUN_FILE} does not know it; {advice}"
        )
    if files[name] != found:
        raise RunFolderError(f"{path / name}: damaged or exchanged ({RUN_FILE} has another hash); {advice}")


def check_partition(path: Path, about: Mapping[str, Any], drawn: Partition | None = None) -> list[str]:
    """Check the partition's file of a run that has begun. What is to be said of it: that it is missing.

    drawn: the partition that the data and the seed give again.

    Raises:
        RunFolderError: the file is damaged, or is that of another partition.
    """
    advice = f"put it back, or delete it: `raffed resume {path}` then writes it again"
    if not (path / PARTITION).exists():
        again = "the data and the seed give the same split, and it is written again"
        then = "put back a copy" if about["state"] == "finished" else again
        return [f"{path / PARTITION}: is missing; {then}"] if about["rounds_done"] else []
    files = about.get("files") or {}
    if PARTITION in files:
        check_file(path, PARTITION, files, advice)
    else:
        _check_lists(path / PARTITION, str(about["partition_sha256"]), drawn, advice)
    return []


def _check_lists(path: Path, recorded: str, drawn: Partition | None, advice: str) -> None:
    """As above for a file whose own hash was not written down: by what is in it."""
    try:
        found = Partition.load(path)
    except UsageError as error:
        raise RunFolderError(f"{error}; {advice}") from error
    if found.sha256() != recorded:
        raise RunFolderError(f"{path}: its lists do not have the hash in {RUN_FILE}; {advice}")
    if drawn is not None and not same_recipe(found, drawn):
        raise RunFolderError(f"{path}: its recipe is not that of this run's split; {advice}")


def same_recipe(found: Partition, drawn: Partition) -> bool:
    """Whether two partitions say the same of how they were made; older versions of raffed said less."""
    common = found.recipe.keys() & drawn.recipe.keys()
    return found.num_classes == drawn.num_classes and all(
        found.recipe[name] == drawn.recipe[name] for name in common
    )


def check_rows(path: Path, rounds: int) -> None:
    """Raise a RunFolderError unless each of a run's first `rounds` rounds has metric rows that can be
    read.
    """
    until, why = rows_until(path)
    if until < rounds:
        raise RunFolderError(why)


def check_finished(path: Path, about: Mapping[str, Any]) -> None:
    """Raise a RunFolderError unless the rows of a finished run are those that it finished with."""
    check_rows(path, about["rounds_done"])
    if rows_sha256(read_metrics(path)) != about["hashes"]["metrics"]:
        raise RunFolderError(
            f"{path / 'metrics'}: the rows do not have the hash in {RUN_FILE}; they, or the hash, were "
            f"changed: put back a copy"
        )
    for text in check_partition(path, about):
        log.warning("%s", text)
