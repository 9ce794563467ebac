"""Write a bundle: collect, scrub, describe, and put everything into one zip."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from raffed.bundles import archive
from raffed.config.validation import Json, table_of
from raffed.errors import RunFolderError, UsageError, check_new_file, writing
from raffed.own.gate import is_below, within
from raffed.results import runfile
from raffed.results.files import check_tree
from raffed.results.origin import commit
from raffed.results.run_list import run_folders
from raffed.results.sweep_file import FINALS, TRIALS, read_sweep
from raffed.results.writer import METRICS_FOLDER, parts_of
from raffed.runs.folder import check_unedited, run_config
from raffed.runs.integrity import PARTITION, check_finished
from raffed.scratch import scratch_folder
from raffed.tables.planner import ITEM_FILE

# What belongs to a run, a sweep or a reproduced table: its record and the folders of its runs.


HIGHEST = 4  # folders above an item's own one in which its runs may lie


@dataclass(frozen=True)
class Contents:
    """What goes into a bundle.

    Attributes:
        kind: "run", "comparison", "sweep" or "item".
        top: The folder to which all names are relative.
        runs: Names of the folders of runs below it, each with a run.json.
        record: Name of the sweep.json or item.json below it; "" without one.
        about: What that file holds.
        notes: What is left out, and why.
    """

    kind: str
    top: Path
    runs: tuple[str, ...]
    record: str
    about: dict[str, Json]
    notes: tuple[str, ...] = ()


def contents_of(place: Path) -> Contents:
    """Return what belongs to the run, comparison, sweep or item in a folder, or to the item of an item.json.

    Raises:
        UsageError: There is none of them, or its runs lie elsewhere.
    """
    folder = place.parent if place.name == ITEM_FILE and place.is_file() else place
    if (folder / runfile.SWEEP_FILE).exists():
        return _sweep(folder)
    if (folder / ITEM_FILE).exists():
        return _item(folder)
    items = sorted(folder.glob(f"*/*/*/{ITEM_FILE}"))  # as `raffed reproduce --out` leaves them
    if len(items) > 1:
        places = ", ".join(str(path.parent) for path in items)
        raise UsageError(f"{folder} holds {len(items)} reproductions; bundle one at a time: {places}")
    if items:
        return _item(items[0].parent)
    runs = [run.relative_to(folder).as_posix() for run in run_folders(folder)]
    if runs and runs != ["."]:
        return _below(folder, "comparison", runs, "", {})
    runfile.read_run(folder)
    return Contents("run", folder, (".",), "", {})


def _sweep(folder: Path) -> Contents:
    about = read_sweep(folder)
    names = []
    for method, record in about["methods"].items():
        place = runfile.folder_name(method)
        names += [f"{place}/{TRIALS}/{trial['name']}" for trial in record.get("trials") or []]
        names += [f"{place}/{FINALS}/seed-{run['seed']}" for run in record.get("final") or []]
    return _below(folder, "sweep", names, runfile.SWEEP_FILE, runfile.read_object(folder, runfile.SWEEP_FILE))


def _item(folder: Path) -> Contents:
    about = runfile.read_object(folder, ITEM_FILE)
    named = sorted({str(within(folder.absolute(), run, HIGHEST)) for run in _runs_of(about) if run})
    if not named:
        raise UsageError(f"{folder / ITEM_FILE}: no run of it is finished, so there is nothing to bundle")
    top = Path(os.path.commonpath([folder.absolute(), *named]))
    record = (folder.absolute() / ITEM_FILE).relative_to(top).as_posix()
    names = [Path(run).relative_to(top).as_posix() for run in named]
    contents = _below(top, "item", names, record, about)
    if about.get("studies"):
        return replace(contents, notes=(*contents.notes, "the study, which replay cannot execute"))
    return contents


def _runs_of(about: dict[str, Json]) -> Iterator[str]:
    """Yield the folders of runs that an item.json names: behind its cells, and of its search."""
    cells = about.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        runs = table_of(cell).get("runs")
        yield from (str(run) for run in (runs if isinstance(runs, list) else []))
    rows = table_of(about.get("search")).get("rows")
    for row in rows if isinstance(rows, list) else []:
        trials = table_of(row).get("trials")
        for trial in trials if isinstance(trials, list) else []:
            yield str(table_of(trial).get("run", ""))


def _below(top: Path, kind: str, names: list[str], record: str, about: dict[str, Json]) -> Contents:
    """Return the contents with those of the named runs that are finished, and notes about the others."""
    runs, notes = [], []
    for name in sorted(set(names)):
        if not (within(top, name) / runfile.RUN_FILE).exists():
            notes.append(f"{name}, which has no {runfile.RUN_FILE}")
        elif (state := runfile.read_run(top / name)["state"]) != "finished":
            notes.append(f"{name}, which is {state}")
        else:
            runs.append(name)
    if not runs:
        raise RunFolderError(f"{top}: no run of it is finished, so there is nothing to bundle")
    return Contents(kind, top, tuple(runs), record, about, tuple(notes))


# The lock of the environment in a bundle: the versions of all packages that are installed.
#
# Only names and versions are listed, never where a package was installed from.


def environment_lock(recorded: Iterable[Mapping[str, str]]) -> str:
    """Return the text of environment.txt, which pip reads as a list of requirements.

    Args:
        recorded: The versions that computed the runs, as their run.json says.
    """
    here = {package.name: package.version for package in importlib.metadata.distributions()}
    computed = sorted(
        {", ".join(f"{name} {version}" for name, version in sorted(record.items())) for record in recorded}
    )
    lines = [
        f"# Python {platform.python_version()}; what was installed when the bundle was written",
        *(f"# computed with {libraries}" for libraries in computed),
        *(f"{name}=={version}" for name, version in sorted(here.items())),
    ]
    return "\n".join(lines) + "\n"


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
`results` of the bundle; report.html, if there is one, was made in this way.
"""


@dataclass(frozen=True)
class Bundled:
    """What was written.

    Attributes:
        path: The zip.
        kind: "run", "comparison", "sweep" or "item".
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


def bundle(place: Path, out: Path, license: str, write_report: Callable[[Path, Path], Path]) -> Bundled:
    """Write the results in a folder into a zip. `raffed.bundle` explains the rest.

    Args:
        place: The folder.
        out: The new file.
        license: Terms of use.
        write_report: Writes the report on the runs in its first folder into its second, and returns its page.
            It is called for everything but a single run.
    """
    check_new_file(out)
    contents = contents_of(place)
    members: dict[str, bytes] = {}
    records = []
    for name in contents.runs:
        files, run = _run_members(contents.top / name, name)
        members |= files
        records.append(run)
    if contents.record:
        about = archive.shared_record(contents.about)
        about = runfile.sealed(about) if contents.record.endswith(runfile.SWEEP_FILE) else about
        members[f"{archive.RESULTS}/{contents.record}"] = runfile.json_text(about).encode()
    if contents.kind != "run":
        with scratch_folder() as top:
            archive.write_members(top, members)
            page = write_report(top / archive.RESULTS, top / "report").read_text(encoding="utf-8")
            members[archive.REPORT_FILE] = page.replace(f"{top}/", "").encode()
    members |= _described(contents, records, members, f"Licence: {license}." if license else UNSTATED)
    for name in members:
        if not is_below(name):
            raise UsageError(f"{name!r} is a name that systems read differently; rename it and run again")
    with writing(out):
        archive.write_archive(out, members)
    data = out.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Bundled(out, contents.kind, contents.runs, len(members), len(data), digest, contents.notes)


def _run_members(folder: Path, name: str) -> tuple[dict[str, bytes], runfile.RunContents]:
    """Return the files of one run for the bundle, after checking that they are what the run wrote."""
    about = _checked_run(folder)
    place = archive.RESULTS if name == "." else f"{archive.RESULTS}/{name}"
    members = {f"{place}/{METRICS_FOLDER}/{part.name}": part.read_bytes() for part in parts_of(folder)}
    if (folder / PARTITION).exists():
        members[f"{place}/{PARTITION}"] = (folder / PARTITION).read_bytes()
    code, files = archive.shared_code(folder, about.get("code", []))
    shared = archive.shared_run(about)
    below = {path.removeprefix(f"{place}/") for path in members}
    shared["files"] = {path: digest for path, digest in about["files"].items() if path in below}
    if code:
        shared["code"] = code
    members[f"{place}/{runfile.RUN_FILE}"] = runfile.json_text(runfile.sealed(shared)).encode()
    return {**members, **files, **archive.trace_member(run_config(folder).clock)}, about


def _checked_run(folder: Path) -> runfile.RunContents:
    check_tree(folder)
    about = runfile.read_run(folder)
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
    records: Sequence[runfile.RunContents],
    members: Mapping[str, bytes],
    license: str,
) -> dict[str, bytes]:
    """Return the files that describe the bundle: environment, README and list of contents."""
    version, title = runfile.versions()["raffed"], _title(contents, records)
    texts = {
        archive.LOCK_FILE: environment_lock([record["versions"] for record in records]).encode(),
        archive.README_FILE: README.format(title=title, version=version, license=license).encode(),
    }
    listed = {
        "schema": BUNDLE_SCHEMA,
        "kind": contents.kind,
        "raffed": version,
        "commit": commit(),
        "record": contents.record,
        "runs": list(contents.runs),
        "left_out": list(contents.notes),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in {**members, **texts}.items()},
    }
    return {**texts, archive.BUNDLE_FILE: runfile.json_text(listed).encode()}


def _title(contents: Contents, records: Sequence[runfile.RunContents]) -> str:
    if contents.kind == "run":
        config = records[0]["config"]
        data = config["data"]
        return (
            f"A run of raffed: {config['method']}, {data['dataset']}, {data['split']}, seed {config['seed']}"
        )
    if contents.kind != "item":
        return f"A {contents.kind} of raffed with {len(records)} finished runs"
    about = contents.about
    return f"{about.get('paper')}/{about.get('name')} ({about.get('scale')}), reproduced by raffed"
