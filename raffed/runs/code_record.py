"""The user's own code in run.json: what a run was made with, and whether the code is still the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.data.own_data import code_of
from raffed.errors import RunFolderError
from raffed.methods import METHODS
from raffed.methods.authors import AuthorsMethod, is_authors
from raffed.own import gate
from raffed.own.carried import RunCode, defined_here, packed
from raffed.own.located import NOTEBOOK, CodeLocation, Sources, changed, hashes_at, located, sources_at
from raffed.own.resolve import install
from raffed.results.files import write_text
from raffed.results.origin import all_files, changed_files
from raffed.results.runfile import CodeRecord, RunContents
from raffed.runtime.run_method import references_in

# Runs of a method whose meaning has changed since: they are neither continued nor verified.


def revision_of(method: str) -> int:
    """Return the present revision of a method; 1 for a method that is not registered."""
    info = METHODS.get(method)
    return 1 if info is None else info.revision


def check_revision(path: Path, then: int, method: str) -> None:
    """Refuse a run that was begun with another revision of its method.

    Args:
        path: The run's folder, for the message.
        then: The revision in its run.json.
        method: Name of the method.

    Raises:
        RunFolderError: The revisions differ.
    """
    now = revision_of(method)
    if then != now:
        raise RunFolderError(
            f"{path}: was begun with revision {then} of {method}, and this raffed has revision {now}, which "
            f"gives another result; use the raffed that began it (`versions` and `commit` in its run.json), "
            f"or start a new run"
        )


ENGINE = "engine"  # the role of an author's code
GO_ON = "put the earlier version back, or go on with --accept-changed-code, which run.json records"


def code_records(code: RunCode) -> list[CodeRecord]:
    """Return what run.json records about the code of a run."""
    return [
        {
            "role": part.role,
            "reference": part.sources.reference,
            "package": part.sources.package,
            "file": part.sources.place.file,
            "root": part.sources.place.root,
            "files": dict(part.sources.files),
        }
        for part in code.parts
    ]


def changes(before: Sequence[CodeRecord], now: Sequence[CodeRecord]) -> dict[str, list[str]]:
    """Return the files that differ between two records of a run's code: name → [old hash, new hash]."""
    return changed_files(all_files(before), all_files(now))


def check_code(path: Path, about: RunContents, config: RunConfig, accept: bool) -> None:
    """Make the code of a recorded run resolvable in this process, and refuse it if it has changed.

    Which code that is the configuration says, and not the record. The code is compared before any of it is
    executed, and the gate says whether it may be.

    Args:
        path: The run's folder, for messages.
        about: What its run.json holds.
        config: The run's configuration.
        accept: Whether changed code is taken, which is also the user's word for it.

    Raises:
        RunFolderError: The code is missing, or has changed and `accept` is false. The message names the file.
        UntrustedCodeError: The user has neither named nor trusted it.
    """
    if is_authors(config.method):
        check_engine(path, about, config.method, accept)
    wanted = references_in(config)
    records = {record["role"]: record for record in about.get("code", [])}
    for role, reference in wanted.items():
        record = records.get(role)
        if record is None:
            if not gate.is_said(reference):
                raise RunFolderError(
                    f"{path}: {role} is {reference}, and run.json holds no record of its code, so it is not "
                    "executed; put back a copy of run.json"
                )
        elif reference != record["reference"]:
            raise RunFolderError(
                f"{path}: {role} was {record['reference']}, and its name now stands for {reference}; install "
                f"{record['package'] or 'the earlier package'} again"
            )
        else:
            _check_same(path, record, accept)


def engine_of(about: RunContents, method: str) -> AuthorsMethod:
    """Return the author's method of a recorded run, where its files lie now.

    Raises:
        RunFolderError: run.json holds no record of them.
    """
    record = next((part for part in about.get("code", []) if part["role"] == ENGINE), None)
    if record is None or record["reference"] != method:
        raise RunFolderError(f"run.json holds no record of the files of {method}; put back a copy of it")
    root = Path(record["root"])  # a bundle has none
    return AuthorsMethod(method, str(root) if root.is_absolute() and root.is_dir() else "")


def engine_record(engine: AuthorsMethod) -> CodeRecord:
    """Return what run.json records about the files of an author's engine."""
    checkout = engine.checkout
    root, main = str(checkout.folder), str(checkout.main)
    return {
        "role": ENGINE,
        "reference": engine.name,
        "package": "",
        "file": main,
        "root": root,
        "files": checkout.hashes,
    }


def check_engine(path: Path, about: RunContents, method: str, accept: bool) -> None:
    """Check the files of an author's engine against their record, and that they may be executed."""
    engine = engine_of(about, method)
    differing = sorted(changes(about["code"], [engine_record(engine)]))
    if differing and not accept:
        raise RunFolderError(f"{path}: {_listed(differing)} changed since the run was begun; {GO_ON}")
    if accept:
        gate.trust([engine.checkout.sha256])
    engine.check_trusted()


def _check_same(path: Path, record: CodeRecord, accept: bool) -> None:
    """Check the code of one reference against its record, and make it resolvable if it may be executed."""
    known = _sources(path, record)
    find = _in_notebook if known.place.home == NOTEBOOK else _found
    now = find(path, record, known)
    if differing := [] if accept else changed(known, now):
        raise RunFolderError(
            f"{path}: {_listed(differing)} changed since the run was begun with {known.reference}; {GO_ON}"
        )
    if gate.is_said(known.reference):
        return
    gate.check_trusted(known.reference, now.place, now.files, accept)
    if defined_here(known.reference):
        gate.allow(known.reference)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")
    return f"{shown} {'has' if len(names) == 1 else 'have'}"


def _sources(path: Path, record: CodeRecord) -> Sources:
    """Return what was recorded. The code of a notebook lies in the run's folder, wherever that is now."""
    file, root = str(path / record["file"]), str(path / record["root"])  # absolute ones stay as they are
    place = CodeLocation(record["reference"].rpartition(":")[0], file, root)
    return Sources(record["reference"], record["package"], record["files"], place)


def _in_notebook(path: Path, record: CodeRecord, known: Sources) -> Sources:
    """Return the notebook's code: of this notebook if it defines the name, or else of the run's folder."""
    if defined_here(known.reference):
        return packed({record["role"]: known.reference}).parts[0].sources
    if not Path(known.place.file).is_file():
        raise RunFolderError(
            f"{path}: {record['file']}, the code of {known.reference}, is missing; put it back"
        )
    install(known.place, known.reference)
    return sources_at(known.reference, known.place)


def write_notebook(path: Path, code: RunCode) -> None:
    """Write the code of a notebook, which lies nowhere else, into the folder of a run."""
    for part in code.parts:
        root = part.sources.place.root
        for name, data in part.contents.items() if not Path(root).is_absolute() else ():
            target = gate.within(gate.within(path, root), name)
            target.parent.mkdir(exist_ok=True)
            write_text(target, data.decode())


def trust_own(code: RunCode, dataset: str) -> None:
    """Note the code of a run as this user's own, so that the run can be resumed."""
    for part in code.parts:
        sources = part.sources
        gate.trust(gate.hashes_of(sources.reference, sources.place, sources.files))
    data = code_of(dataset)
    place = located(data.rpartition(":")[0]) if data is not None else None
    if data is not None and place is not None and gate.is_said(data):
        gate.trust(gate.hashes_of(data, place, hashes_at(place)))


def _found(path: Path, record: CodeRecord, known: Sources) -> Sources:
    """Return the code as it is now: where the run found it, or else where the reference leads from here."""
    here = located(known.place.home)
    said = here is not None and gate.is_said(known.reference)  # then a record does not say where it lies
    recorded = known.place if not said and Path(known.place.file).is_file() else None
    candidates = [place for place in (recorded, here) if place is not None]
    if not candidates:
        raise RunFolderError(
            f"{path}: {record['role']} is {known.reference}, which was the file {known.place.file}; it is "
            "not there and cannot be found from here; put it back, install "
            f"{record['package'] or 'its package'}, or start raffed in the folder that holds it"
        )
    every = [sources_at(known.reference, place) for place in candidates]
    chosen = next((sources for sources in every if not changed(known, sources)), every[0])
    if chosen.place != here:
        install(chosen.place, known.reference)
    return chosen


def accepted(contents: RunContents, code: RunCode) -> Mapping[str, list[str]]:
    """Return the changes between the code that run.json records and that with which the run goes on."""
    return changes(contents.get("code", []), code_records(code))
