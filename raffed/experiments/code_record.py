"""The user's own code in run.json: what a run was made with, and whether the code is still the same."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.errors import RunFolderError
from raffed.references.carried import CarriedCode, RunCode
from raffed.references.located import located
from raffed.references.resolve import CodeLocation, install
from raffed.references.source_files import Sources, changed, sources_at
from raffed.results.run_contents import CodeRecord, RunContents
from raffed.runtime.own_code import references_in

GO_ON = "put the earlier version back, or go on with --accept-changed-code, which run.json records"
MISSING = "no file"  # in place of a hash


def code_records(code: RunCode) -> list[CodeRecord]:
    """Return what run.json records about the code of a run."""
    return [_record(part) for part in code.parts]


def _record(part: CarriedCode) -> CodeRecord:
    found = part.sources
    return {
        "role": part.role,
        "reference": found.reference,
        "package": found.package,
        "file": found.place.file,
        "root": found.place.root,
        "files": dict(found.files),
    }


def changes(before: Sequence[CodeRecord], now: Sequence[CodeRecord]) -> dict[str, list[str]]:
    """Return the files that differ between two records of a run's code: name → [old hash, new hash]."""
    old, new = _files(before), _files(now)
    return {
        name: [old.get(name, MISSING), new.get(name, MISSING)]
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def _files(records: Sequence[CodeRecord]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in records:
        for name, digest in one["files"].items():
            taken = found.get(name, digest) != digest  # files of one name below two folders
            found[f"{one['role']}: {name}" if taken else name] = digest
    return found


def check_code(path: Path, about: RunContents, config: RunConfig, accept: bool) -> None:
    """Make the code of a recorded run resolvable in this process, and refuse it if it has changed.

    The code is compared before any of it is executed.

    Args:
        path: The run's folder, for messages.
        about: What its run.json holds.
        config: The run's configuration.
        accept: Whether changed code is taken.

    Raises:
        RunFolderError: The code is missing, or has changed and `accept` is false. The message names the file.
    """
    wanted = references_in(config)
    for record in about.get("code", []):
        if wanted.get(record["role"]) not in (None, record["reference"]):
            raise RunFolderError(
                f"{path}: {record['role']} was {record['reference']}, and its name now stands for "
                f"{wanted[record['role']]}; install {record['package'] or 'the earlier package'} again"
            )
        known = _sources(record)
        now = _found(path, record, known)
        differing = changed(known, now)
        if differing and not accept:
            raise RunFolderError(
                f"{path}: {_listed(differing)} changed since the run was begun with {known.reference}; "
                f"{GO_ON}"
            )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")
    return f"{shown} {'has' if len(names) == 1 else 'have'}"


def _sources(record: CodeRecord) -> Sources:
    place = CodeLocation(record["reference"].rpartition(":")[0], record["file"], record["root"])
    return Sources(record["reference"], record["package"], record["files"], place)


def _found(path: Path, record: CodeRecord, known: Sources) -> Sources:
    """Return the code as it is now: where the run found it, or else where the reference leads from here."""
    recorded = known.place if Path(known.place.file).is_file() else None
    here = located(known.place.home)
    candidates = [one for one in (recorded, here) if one is not None]
    if not candidates:
        raise RunFolderError(
            f"{path}: {record['role']} is {known.reference}, which was the file {known.place.file}"
            f"{_of(record['package'])}; it is not there and cannot be found from here; put it back, "
            f"install its package, or start raffed in the folder that holds it"
        )
    every = [sources_at(known.reference, one) for one in candidates]
    chosen = next((one for one in every if not changed(known, one)), every[0])
    if chosen.place != here:
        install(chosen.place)
    return chosen


def _of(package: str) -> str:
    if not package:
        return ""
    name = package.rpartition(" ")[0]
    try:
        here = f"{name} {importlib.metadata.version(name)} is installed"
    except importlib.metadata.PackageNotFoundError:
        here = f"{name} is not installed"
    return f" of the package {package} ({here})"


def accepted(contents: RunContents, code: RunCode) -> Mapping[str, list[str]]:
    """Return the changes between the code that run.json records and that with which the run goes on."""
    return changes(contents.get("code", []), code_records(code))
