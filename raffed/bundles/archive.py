"""The zip of a bundle, with sources and traces: the same bytes every time, read as if from a stranger.

Members are stored and not compressed. So the bytes do not depend on a library of compression, and no small
file can claim a large one. Most of a bundle is Parquet, which is compressed in itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from raffed.budget import allow, file_bytes
from raffed.config.run import RunConfig
from raffed.config.sections import Clock
from raffed.config.validation import Json, table_of
from raffed.errors import UsageError
from raffed.methods.authors import is_authors
from raffed.own.gate import is_below, within
from raffed.own.located import CodeLocation, located
from raffed.results.files import KINDS, LARGEST, check_regular, replacing
from raffed.results.runfile import SEAL, CodeRecord, RunContents

BUNDLE_FILE: Final = "bundle.json"
LOCK_FILE: Final = "environment.txt"
README_FILE: Final = "README.md"
REPORT_FILE: Final = "report.html"
RESULTS: Final = "results"
CODE: Final = "code"
TRACES: Final = "traces"  # files of `clock.trace`, named by their SHA-256
MOST_MEMBERS = 20_000
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold; a bundle does not say when it was made
_MODE = stat.S_IFREG | 0o644
_UNIX = 3
_KNOWN = re.compile(
    rf"{BUNDLE_FILE}|{LOCK_FILE}|{README_FILE}|{REPORT_FILE}"
    rf"|{RESULTS}/(.+/)?(run\.json|sweep\.json|item\.json|partition\.npz|metrics/part-\d+-\d+\.parquet)"
    rf"|{CODE}/[0-9a-f]{{12}}/(.+/)?[^/]+\.py"
    rf"|{TRACES}/[0-9a-f]{{64}}\.csv"
)


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write the members into a new zip, in the order of their names, in one step.

    Args:
        path: The new file.
        members: Name → bytes. Equal members give equal bytes.
    """
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            about = zipfile.ZipInfo(name, _DATE)
            about.create_system, about.external_attr = _UNIX, _MODE << 16
            archive.writestr(about, members[name])


def write_members(top: Path, members: Mapping[str, bytes]) -> None:
    """Write the members as files below a folder."""
    for name, data in members.items():
        target = within(top, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the members of a bundle. Nothing is written.

    Raises:
        UsageError: The file is not a zip, or holds what `raffed bundle` does not write: a link, a path that
            leads out of a folder, a compressed or encrypted member, a file of another kind, too much of it.
    """
    try:
        check_regular(path, path.stat())
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_all(path, members)
            return {member.filename: archive.read(member) for member in members}
    except UsageError:
        raise
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file; give the zip that `raffed bundle` wrote") from error
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{path}: cannot be read as a zip ({error}); fetch the bundle again") from error


def _check_all(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Check the list of members against what a bundle may hold, before any of them is read."""
    if len(members) > MOST_MEMBERS:
        raise _refused(path, f"it has {len(members)} members, and a bundle has at most {MOST_MEMBERS}")
    for why in _problems(members):
        raise _refused(path, why)
    claimed = sum(member.file_size for member in members)
    if claimed > path.stat().st_size:
        raise _refused(path, f"its members claim {claimed:,} bytes, more than the file has")
    allow(claimed, str(path))
    if BUNDLE_FILE not in {member.filename for member in members}:
        raise _refused(path, f"it has no {BUNDLE_FILE}")


def _problems(members: list[zipfile.ZipInfo]) -> Iterator[str]:
    """Yield what a bundle may not hold, one sentence for each member that is wrong."""
    seen: set[str] = set()
    for m in members:
        name = ascii(m.orig_filename)[:100]
        kind = stat.S_IFMT(m.external_attr >> 16)
        if not is_below(m.orig_filename):
            yield f"the member {name} leads out of the folder, or has a name that systems read differently"
        elif kind not in (0, stat.S_IFREG):
            yield f"the member {name} is {KINDS.get(kind, 'a device')}"
        elif not _KNOWN.fullmatch(m.filename):
            yield f"the member {name} is not a file that a bundle holds"
        elif m.filename.casefold() in seen:
            yield f"the member {name} is there twice"
        elif m.flag_bits & 1 or m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size:
            yield f"the member {name} is compressed or encrypted"
        elif m.filename.endswith(".json") and m.file_size > LARGEST:
            yield f"the member {name} has {m.file_size:,} bytes, and may have at most {LARGEST:,}"
        seen.add(m.filename.casefold())


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a bundle as `raffed bundle` writes it: {why}; nothing was unpacked")


# The user's own code in a bundle: the files that a run was made with, found again by their hashes.
#
# Nothing is imported, so nothing of it is executed.


def shared_code(run: Path, records: list[CodeRecord]) -> tuple[list[CodeRecord], dict[str, bytes]]:
    """Return the records of a run's code with places inside the bundle, and the files: name → bytes.

    Args:
        run: The run's folder, which holds the code of a notebook.
        records: What its run.json says about its code.

    Raises:
        UsageError: A file has changed since the run or is gone.
    """
    shared: list[CodeRecord] = []
    members: dict[str, bytes] = {}
    for record in records:
        if is_authors(record["reference"]):  # its licence may not permit it, so hashes alone are shared
            shared.append({**record, "root": ".", "file": _below(record).as_posix()})
            continue
        root = _recorded_root(run, record)
        place = f"{CODE}/{_digest(record['files'])}"
        for name in record["files"]:
            members[f"{place}/{name}"] = within(root, name).read_bytes()
        shared.append({**record, "root": place, "file": f"{place}/{_below(record).as_posix()}"})
    return shared, members


def _digest(files: Mapping[str, str]) -> str:
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def _below(record: CodeRecord) -> Path:
    """Return the path of the defining file below the folder from which it is imported."""
    return Path(record["file"]).relative_to(record["root"])


def _recorded_root(run: Path, record: CodeRecord) -> Path:
    """Return the folder in which all files have the hashes of the run."""
    here = located(record["reference"].rpartition(":")[0])
    # An absolute path of the record stays as it is
    for root in (run / record["root"], *([] if here is None else [Path(here.root)])):
        if all(_sha256(within(root, name)) == digest for name, digest in record["files"].items()):
            return root
    first = next(iter(record["files"]), record["file"])
    raise UsageError(
        f"{run}: {first} of {record['reference']} is not there as it was when the run was begun; put the "
        f"earlier version back, or run again"
    )


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def place_in(top: Path, record: CodeRecord) -> CodeLocation:
    """Return where the code of a record lies in the folder in which its bundle was unpacked."""
    root, file = within(top.absolute(), record["root"]), within(top.absolute(), record["file"])
    return CodeLocation(record["reference"].rpartition(":")[0], str(file), str(root))


def check_code_files(top: Path, records: list[CodeRecord]) -> None:
    """Raise a UsageError unless a bundle holds the code of a run, with the hashes that the run recorded."""
    for record in records:
        if is_authors(record["reference"]):  # nothing of it is in the bundle or installed from it
            continue
        inside = record["root"].startswith(f"{CODE}/") and record["file"].startswith(f"{record['root']}/")
        if not inside or record["file"].removeprefix(f"{record['root']}/") not in record["files"]:
            raise UsageError(
                f"{record['reference']}: the bundle does not say where its code is; fetch the bundle again"
            )
        for name, digest in record["files"].items():
            if _sha256(within(within(top, record["root"]), name)) != digest:
                raise UsageError(
                    f"{record['root']}/{name}: is not the code that the run was made with; fetch the bundle "
                    f"again"
                )


# What of run.json and sweep.json goes into a bundle: not the places of the data and of the run.


# Of run.json: names of machines, messages with paths, and names of clients and values out of the user's table
LEFT_OUT: Final = ("placement", "error", "dataset", SEAL)


def trace_name(sha256: str) -> str:
    """Return the name of a file of speeds in a bundle."""
    return f"{TRACES}/{sha256}.csv"


def shared_config(value: Json) -> dict[str, Json]:
    """Return a configuration without the places of files. It has the identity of the whole one."""
    config = RunConfig.from_dict(table_of(value))
    tables: dict[str, Json] = json.loads(json.dumps(config.as_dict()))
    table_of(tables["data"])["root"] = None
    table_of(tables["runtime"]).update(address=None, author_python="")
    if config.model.init:
        table_of(tables["model"])["init"] = Path(config.model.init).name
    if config.clock.trace:
        table_of(tables["clock"])["trace"] = trace_name(config.clock.trace_sha256)
    return tables


def shared_run(about: RunContents) -> dict[str, Any]:
    """Return what a bundle says about a run, but for its code."""
    shared: dict[str, Any] = {name: value for name, value in about.items() if name not in LEFT_OUT}
    shared["config"] = shared_config(about["config"])
    shared["segments"] = [{**segment, "said": []} for segment in about["segments"]]
    if "engine" in about:
        shared["engine"] = {**about["engine"], "signature": ""}
    if "earlier" in about:
        shared["earlier"] = [{**run, "config": shared_config(run["config"])} for run in about["earlier"]]
    return shared


def shared_record(about: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a bundle holds of a sweep.json or item.json."""
    shared = {name: value for name, value in about.items() if name != SEAL}
    request = table_of(about.get("request"))
    if "base" in request:
        shared["request"] = {**request, "base": shared_config(request["base"])}
    return shared


# The files of speeds (`clock.trace`) in a bundle. Without them a run cannot be executed again.


def trace_member(clock: Clock) -> dict[str, bytes]:
    """Return the trace of a run for the bundle: name → bytes. It is empty for a run without one.

    Args:
        clock: The run's clock.

    Raises:
        UsageError: The file is gone or has changed since the run.
    """
    if not clock.trace:
        return {}
    data = file_bytes("clock.trace", clock.trace, "put the file back")
    if hashlib.sha256(data).hexdigest() != clock.trace_sha256:
        raise UsageError(f"{clock.trace} has changed since the run was made; put the earlier version back")
    return {trace_name(clock.trace_sha256): data}


def clock_here(clock: Clock, out: Path) -> Clock:
    """Return a clock that reads its trace from the folder of a replay.

    Raises:
        UsageError: The bundle does not hold the trace.
    """
    if not clock.trace:
        return clock
    place = out / trace_name(clock.trace_sha256)
    if not re.fullmatch(r"[0-9a-f]{64}", clock.trace_sha256) or not place.is_file():
        raise UsageError(
            f"the bundle has no file of speeds in {TRACES}/ for clock.trace; bundle the run again"
        )
    return replace(clock, trace=str(place.absolute()))
