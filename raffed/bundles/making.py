"""Write a bundle: collect, scrub, describe, and put everything into one zip."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raffed.bundles.archive import (
    BUNDLE_FILE,
    LOCK_FILE,
    README_FILE,
    RESULTS,
    write_archive,
)
from raffed.bundles.contents import Contents, contents_of
from raffed.bundles.environment import environment_lock
from raffed.bundles.scrub import shared_record, shared_run
from raffed.bundles.sources import shared_code
from raffed.bundles.traces import trace_member
from raffed.errors import UsageError, check_new_file, writing
from raffed.own.gate import is_below
from raffed.results.run_contents import RunContents
from raffed.results.runfile import RUN_FILE, json_text, read_object, read_run, versions
from raffed.results.seal import sealed
from raffed.results.source_commit import commit
from raffed.results.sweep_file import SWEEP_FILE
from raffed.results.tree import check_run_tree
from raffed.results.writer import METRICS_FOLDER, parts_of
from raffed.runs.folder import check_unedited, run_config
from raffed.runs.integrity import PARTITION, check_finished

BUNDLE_SCHEMA: Final = 1
UNSTATED: Final = "The authors of these results have not stated a licence."
README = """# {title}

Written by `raffed bundle` (raffed {version}). It holds configurations, partitions (indices of samples, no
data), measurements, hashes and source code of the authors' own. environment.txt lists the versions of all
packages. {license}

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


def bundle(place: Path, out: Path, license: str = "") -> Bundled:
    """Write the run, sweep or reproduced table in a folder into a zip. `raffed.bundle` explains the rest."""
    check_new_file(out)
    contents = contents_of(place)
    members: dict[str, bytes] = {}
    records = []
    for name in contents.runs:
        files, run = _run_members(contents.top / name, name)
        members |= files
        records.append(run)
    if contents.record:
        about = shared_record(contents.about)
        about = sealed(about) if contents.record.endswith(SWEEP_FILE) else about
        members[f"{RESULTS}/{contents.record}"] = json_text(about).encode()
    members |= _described(contents, records, members, f"Licence: {license}." if license else UNSTATED)
    for name in members:
        if not is_below(name):
            raise UsageError(f"{name!r} is a name that systems read differently; rename it and run again")
    with writing(out):
        write_archive(out, members)
    data = out.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Bundled(out, contents.kind, contents.runs, len(members), len(data), digest, contents.notes)


def _run_members(folder: Path, name: str) -> tuple[dict[str, bytes], RunContents]:
    """Return the files of one run for the bundle, after checking that they are what the run wrote."""
    about = _checked_run(folder)
    place = RESULTS if name == "." else f"{RESULTS}/{name}"
    members = {f"{place}/{METRICS_FOLDER}/{part.name}": part.read_bytes() for part in parts_of(folder)}
    if (folder / PARTITION).exists():
        members[f"{place}/{PARTITION}"] = (folder / PARTITION).read_bytes()
    code, files = shared_code(folder, about.get("code", []))
    shared = shared_run(read_object(folder, RUN_FILE))
    below = {path.removeprefix(f"{place}/") for path in members}
    if "files" in shared:
        shared["files"] = {path: digest for path, digest in about["files"].items() if path in below}
    if code:
        shared["code"] = json.loads(json.dumps(code))
    members[f"{place}/{RUN_FILE}"] = json_text(sealed(shared)).encode()
    return {**members, **files, **trace_member(run_config(folder).clock)}, about


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


def _described(
    contents: Contents,
    records: Sequence[RunContents],
    members: Mapping[str, bytes],
    license: str,
) -> dict[str, bytes]:
    """Return the files that describe the bundle: environment, README and list of contents."""
    version, title = versions()["raffed"], _title(contents, records)
    packages = [one["package"] for about in records for one in about.get("code", []) if one["package"]]
    found = {
        LOCK_FILE: environment_lock(packages, [one["versions"] for one in records]).encode(),
        README_FILE: README.format(title=title, version=version, license=license).encode(),
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
    return {**found, BUNDLE_FILE: json_text(listed).encode()}


def _title(contents: Contents, records: Sequence[RunContents]) -> str:
    if contents.kind == "run":
        config = records[0]["config"]
        data = config["data"]
        return (
            f"A run of raffed: {config['method']}, {data['dataset']}, {data['split']}, seed {config['seed']}"
        )
    if contents.kind == "sweep":
        return f"A sweep of raffed with {len(records)} finished runs"
    about = contents.about
    return f"{about.get('paper')}/{about.get('name')} ({about.get('scale')}), reproduced by raffed"


def _hashes(members: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}


__all__ = ["BUNDLE_SCHEMA", "Bundled", "bundle"]
