"""Write a bundle: collect, scrub, describe, and put everything into one zip."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from raffed.config.validation import Json
from raffed.data.partition import Partition
from raffed.errors import UsageError, check_new_file, writing
from raffed.experiments.bundles.archive import (
    BUNDLE_FILE,
    CRATE_FILE,
    LOCK_FILE,
    README_FILE,
    RESULTS,
    write_archive,
)
from raffed.experiments.bundles.contents import Contents, contents_of
from raffed.experiments.bundles.crate import UNSTATED, RunAction, crate
from raffed.experiments.bundles.environment import environment_lock
from raffed.experiments.bundles.private_text import Machine, this_machine
from raffed.experiments.bundles.scrub import refuse, shared_record, shared_run
from raffed.experiments.bundles.sources import shared_code
from raffed.experiments.bundles.traces import trace_member
from raffed.experiments.folder import check_unedited, run_config
from raffed.experiments.integrity import PARTITION, check_finished
from raffed.references.gate import is_below
from raffed.results.run_contents import CodeRecord, RunContents
from raffed.results.runfile import RUN_FILE, json_text, read_object, read_run, versions
from raffed.results.seal import sealed
from raffed.results.source_commit import commit
from raffed.results.sweep_file import SWEEP_FILE
from raffed.results.tree import check_run_tree
from raffed.results.writer import METRICS_FOLDER, parts_of, read_metrics

BUNDLE_SCHEMA: Final = 1
README = """# {title}

Written by `raffed bundle` (raffed {version}). It holds configurations, partitions (indices of samples, no
data), measurements, hashes and source code of the authors' own. environment.txt lists the versions of all
packages.

Execute the runs again and compare them, with raffed installed and the data sets at hand:

    raffed replay BUNDLE.zip --out again

`--rounds 5` executes the first five rounds only. If there is a folder `code`, its files are
executed, so read them first and give `--trust-code`. The exit code is 0 if everything has the recorded bits,
1 if something differs, and 2 if the bundle or the request is refused. `raffed report` reads the folder
`results` of the bundle.
"""


@dataclass(frozen=True)
class Bundled:
    """What was written.

    Attributes:
        path: The zip.
        kind: "run", "sweep" or "item".
        runs: Names of the runs in it.
        files: Number of files in it.
        size: Its size in bytes.
        sha256: The SHA-256 of its bytes.
        left_out: What was left out, and why.
    """

    path: Path
    kind: str
    runs: tuple[str, ...]
    files: int
    size: int
    sha256: str
    left_out: tuple[str, ...] = ()


def bundle(place: Path, out: Path, allowed: Sequence[str] = (), license: str = "") -> Bundled:
    """Write the run, sweep or reproduced table in a folder into a zip. `raffed.bundle` explains the rest."""
    check_new_file(out)
    contents, machine = contents_of(place), this_machine(allowed)
    members: dict[str, bytes] = {}
    records, actions = [], []
    for name in contents.runs:
        found = _run_members(contents.top / name, name, machine)
        members |= found.members
        records.append(found.about)
        actions.append(found.action)
    if contents.record:
        about = shared_record(contents.about, machine, str(contents.top / contents.record))
        about = sealed(about) if contents.record.endswith(SWEEP_FILE) else about
        members[f"{RESULTS}/{contents.record}"] = json_text(about).encode()
    members |= _described(contents, records, actions, members, license or UNSTATED)
    for name in members:
        _check_name(name, machine)
    with writing(out):
        write_archive(out, members)
    data = out.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Bundled(out, contents.kind, contents.runs, len(members), len(data), digest, contents.notes)


@dataclass(frozen=True)
class _RunMembers:
    members: dict[str, bytes]
    about: RunContents
    action: RunAction


def _run_members(folder: Path, name: str, machine: Machine) -> _RunMembers:
    """Return the files of one run for the bundle, after checking that they are what the run wrote."""
    about = _checked_run(folder)
    place = RESULTS if name == "." else f"{RESULTS}/{name}"
    members = {f"{place}/{METRICS_FOLDER}/{part.name}": part.read_bytes() for part in parts_of(folder)}
    if (folder / PARTITION).exists():
        members[f"{place}/{PARTITION}"] = (folder / PARTITION).read_bytes()
    code, files = shared_code(folder, about.get("code", []), machine)
    shared = shared_run(read_object(folder, RUN_FILE), machine, str(folder))
    _check_contents(folder, machine)
    below = {one.removeprefix(f"{place}/") for one in members}
    if "files" in shared:
        shared["files"] = {one: digest for one, digest in about["files"].items() if one in below}
    if code:
        shared["code"] = [_code_record(one) for one in code]
    members[f"{place}/{RUN_FILE}"] = json_text(sealed(shared)).encode()
    config = about["config"]
    title = (
        f"{config['method']}, {config['data']['dataset']}, {config['data']['split']}, seed {config['seed']}"
    )
    started = str(about.get("started", ""))
    files |= trace_member(run_config(folder).clock, machine)
    return _RunMembers({**members, **files}, about, RunAction(place, title, started, tuple(sorted(members))))


def _checked_run(folder: Path) -> RunContents:
    check_run_tree(folder)
    about = read_run(folder)
    if about["state"] != "finished":
        raise UsageError(f"{folder}: the run is {about['state']}; finish it first: raffed resume {folder}")
    check_unedited(folder)
    check_finished(folder, about)
    if run_config(folder).federation.forked_at:
        raise UsageError(
            f"{folder}: this run is a fork, and its first rounds cannot be executed from its folder "
            f"alone; bundle the run that it was forked from"
        )
    return about


def _check_contents(folder: Path, machine: Machine) -> None:
    """Refuse what the texts in the rows and in the partition's recipe say about this machine."""
    words: set[str] = set()
    rows = read_metrics(folder)
    for column in rows.column_names:
        kind = rows[column].type
        if pa.types.is_string(kind) or pa.types.is_dictionary(kind):
            words |= {
                str(one) for one in rows[column].cast(pa.string()).unique().to_pylist() if one is not None
            }
    if (folder / PARTITION).exists():
        words |= {str(one) for one in Partition.load(folder / PARTITION).recipe.values()}
    for word in sorted(words):
        refuse(machine, word, f"{folder}, its rows or its partition", paths=True)


def _code_record(record: CodeRecord) -> Json:
    found: dict[str, Json] = json.loads(json.dumps(record))
    return found


def _described(
    contents: Contents,
    records: Sequence[RunContents],
    actions: Sequence[RunAction],
    members: Mapping[str, bytes],
    license: str,
) -> dict[str, bytes]:
    """Return the files that describe the bundle: environment, README, list of contents, and RO-Crate."""
    version, title = versions()["raffed"], _title(contents, actions)
    packages = [one["package"] for about in records for one in about.get("code", []) if one["package"]]
    found = {
        LOCK_FILE: environment_lock(packages, [one["versions"] for one in records]).encode(),
        README_FILE: README.format(title=title, version=version).encode(),
    }
    hashes = _hashes({**members, **found})
    listed = {
        "schema": BUNDLE_SCHEMA,
        "kind": contents.kind,
        "raffed": version,
        "commit": commit(),
        "record": contents.record,
        "runs": list(contents.runs),
        "left_out": list(contents.notes),
        "files": hashes,
    }
    found[BUNDLE_FILE] = json_text(listed).encode()
    every = {**members, **found}
    sizes = {name: len(data) for name, data in every.items()}
    found[CRATE_FILE] = crate(title, license, version, _hashes(every), sizes, actions).encode()
    return found


def _title(contents: Contents, actions: Sequence[RunAction]) -> str:
    if contents.kind == "run":
        return f"A run of raffed: {actions[0].name}"
    if contents.kind == "sweep":
        return f"A sweep of raffed with {len(actions)} finished runs"
    about = contents.about
    return f"{about.get('paper')}/{about.get('name')} ({about.get('scale')}), reproduced by raffed"


def _hashes(members: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}


def _check_name(name: str, machine: Machine) -> None:
    if not is_below(name):
        raise UsageError(f"{name!r} is a name that systems read differently; rename it and run again")
    refuse(machine, name, f"the name {name}", paths=False)


__all__ = ["BUNDLE_SCHEMA", "Bundled", "bundle"]
