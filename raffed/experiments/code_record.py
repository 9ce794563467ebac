"""The user's own code in run.json: what a run was made with, and whether the code is still the same."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.errors import RunFolderError
from raffed.references.carried import CarriedCode, RunCode, defined_here, packed
from raffed.references.located import located
from raffed.references.resolve import NOTEBOOK, CodeLocation, install, is_file
from raffed.references.source_files import Sources, changed, sources_at
from raffed.references.trusted import trust, trusted
from raffed.results.atomic import write_text
from raffed.results.code_history import all_files, changed_files
from raffed.results.run_contents import CodeRecord, RunContents
from raffed.runtime.own_code import references_in

GO_ON = "put the earlier version back, or go on with --accept-changed-code, which run.json records"


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
    return changed_files(all_files(before), all_files(now))


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
        known = _sources(path, record)
        found = _in_notebook if known.place.home == NOTEBOOK else _found
        now = found(path, record, known, accept)
        differing = changed(known, now)
        if differing and not accept:
            raise RunFolderError(
                f"{path}: {_listed(differing)} changed since the run was begun with {known.reference}; "
                f"{GO_ON}"
            )
        if not accept and _from_anybody(path, now.place) and not all(map(trusted, now.files.values())):
            raise RunFolderError(
                f"{path}: {now.place.file} would be executed, and this account has not begun a run with it; "
                f"read it, and give --accept-changed-code if it may run"
            )


def _from_anybody(path: Path, place: CodeLocation) -> bool:
    """Return whether code may have come with the run's folder, unlike an installed package."""
    return is_file(place.home) or path.resolve() in Path(place.file).resolve().parents


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")
    return f"{shown} {'has' if len(names) == 1 else 'have'}"


def _sources(path: Path, record: CodeRecord) -> Sources:
    """Return what was recorded. The code of a notebook lies in the run's folder, wherever that is now."""
    file, root = str(path / record["file"]), str(path / record["root"])  # absolute ones stay as they are
    place = CodeLocation(record["reference"].rpartition(":")[0], file, root)
    return Sources(record["reference"], record["package"], record["files"], place)


def _in_notebook(path: Path, record: CodeRecord, known: Sources, accept: bool) -> Sources:
    """Return the notebook's code: of this notebook if it defines the name, or else of the run's folder.

    A folder may come from a stranger, so its code is executed only if this user has written it.
    """
    if defined_here(known.reference):
        return packed({record["role"]: known.reference}).parts[0].sources
    if not Path(known.place.file).is_file():
        raise RunFolderError(
            f"{path}: {record['file']}, the code of {known.reference}, is missing; put it back"
        )
    now = sources_at(known.reference, known.place)
    if not accept and not changed(known, now) and not all(map(trusted, now.files.values())):
        raise RunFolderError(
            f"{path}: {record['file']} would be executed, and this account has not written it; read it, and "
            f"give --accept-changed-code if it may run"
        )
    if accept or not changed(known, now):
        install(known.place)
    return now


def write_notebook(path: Path, code: RunCode) -> None:
    """Write the code of a notebook, which lies nowhere else, into the folder of a run."""
    for part in code.parts:
        root = Path(part.sources.place.root)
        for name, data in part.contents.items() if not root.is_absolute() else ():
            target = path / root / name
            target.parent.mkdir(exist_ok=True)
            write_text(target, data.decode())


def trust_own(code: RunCode) -> None:
    """Note a notebook's code and single files as this user's own, so that the run can be resumed."""
    for part in code.parts:
        if is_file(part.sources.place.home) or not Path(part.sources.place.root).is_absolute():
            for digest in part.sources.files.values():
                trust(digest)


def _found(path: Path, record: CodeRecord, known: Sources, _: bool) -> Sources:
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
