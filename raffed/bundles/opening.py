"""Open a bundle that may come from anybody: it is checked before anything lies where it was asked for."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeGuard

from typing_extensions import TypedDict

from raffed.bundles.archive import BUNDLE_FILE, RESULTS, check_code_files, read_archive
from raffed.bundles.making import BUNDLE_SCHEMA
from raffed.config.run import RunConfig
from raffed.config.validation import Json
from raffed.data.array_cache import CACHED
from raffed.data.importers.reference import parse_reference
from raffed.data.own_data import is_own
from raffed.data.partition_file import Partition
from raffed.errors import RaffedError, UsageError
from raffed.own.gate import note_read, within
from raffed.results.files import Shape, check_json, check_run_tree
from raffed.results.runfile import SWEEP_FILE, Name, RunContents, Sha256, read_run
from raffed.results.sweep_file import read_sweep
from raffed.runs.folder import check_unedited, run_config
from raffed.runs.integrity import PARTITION, check_finished
from raffed.runtime.own_code import references_in
from raffed.scratch import scratch_folder


class BundleContents(TypedDict):
    """The whole contents of bundle.json."""

    schema: int
    kind: str
    raffed: str
    commit: str | None
    record: str
    runs: list[Name]
    left_out: list[str]
    files: Annotated[dict[str, Json], Shape(dict[Name, Sha256])]


@dataclass(frozen=True)
class OpenedRun:
    """One run of a bundle: its name, its unpacked folder, its run.json, and its configuration."""

    name: str
    folder: Path
    about: RunContents
    config: RunConfig

    def code(self) -> list[str]:
        """Return the references of the configuration whose code would be executed."""
        named = list(references_in(self.config).values())
        dataset = self.config.data.dataset
        code = is_own(dataset) and not dataset.startswith(CACHED) and parse_reference(dataset) is None
        return [*named, *([dataset] if code else [])]


@dataclass(frozen=True)
class OpenedBundle:
    """An unpacked bundle.

    Attributes:
        top: The temporary folder in which it was unpacked.
        contents: What its bundle.json holds.
        runs: The runs in it.
    """

    top: Path
    contents: BundleContents
    runs: tuple[OpenedRun, ...]

    def chosen(self, names: Sequence[str]) -> tuple[OpenedRun, ...]:
        """Return the runs of these names, or all without a name.

        Raises:
            UsageError: The bundle has no such run.
        """
        known = {one.name: one for one in self.runs}
        for name in names:
            if name not in known:
                raise UsageError(f"the bundle has no run {name!r}; it has {', '.join(sorted(known)[:12])}")
        return tuple(known[name] for name in dict.fromkeys(names)) if names else self.runs


@contextlib.contextmanager
def opened(path: Path) -> Iterator[OpenedBundle]:
    """Yield a bundle, unpacked into a temporary folder and checked completely. Nothing of it is executed.

    Raises:
        UsageError: It is not a bundle as `raffed bundle` writes it.
    """
    members = read_archive(path)
    contents = _contents(path, members)
    with scratch_folder() as made:
        for name, data in members.items():
            target = within(made, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        with _told_as(path, made):
            runs = tuple(_run(made, name) for name in contents["runs"])
            if contents["record"].endswith(SWEEP_FILE):
                read_sweep(within(made / RESULTS, contents["record"]).parent)
        yield OpenedBundle(made, contents, runs)


def _contents(path: Path, members: Mapping[str, bytes]) -> BundleContents:
    """Return what bundle.json holds, after comparing every file with its hash there."""
    try:
        found: dict[str, Json] = json.loads(members[BUNDLE_FILE])
        note_read(found)
        if not _is_contents(found):
            raise ValueError(f"{BUNDLE_FILE} does not hold what a bundle says")
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not a bundle that this raffed reads: {error}; nothing was unpacked"
        ) from error
    if len(set(found["runs"])) < len(found["runs"]):
        raise UsageError(f"{path}: {BUNDLE_FILE} lists a run twice; nothing was unpacked")
    listed = found["files"]
    for name, data in members.items():
        if name != BUNDLE_FILE and listed.get(name) != hashlib.sha256(data).hexdigest():
            raise UsageError(
                f"{path}: {name} is not what {BUNDLE_FILE} lists (it was changed or added); nothing was "
                f"unpacked"
            )
    if missing := sorted(listed.keys() - members.keys()):
        raise UsageError(f"{path}: {missing[0]} is listed and not there; nothing was unpacked")
    return found


def _is_contents(found: dict[str, Json]) -> TypeGuard[BundleContents]:
    if not isinstance(found, dict):
        raise ValueError(f"{BUNDLE_FILE} must hold an object")
    schema = found.get("schema")
    if schema != BUNDLE_SCHEMA:
        raise ValueError(
            f"{BUNDLE_FILE} has schema {ascii(schema)[:20]}, and this raffed reads {BUNDLE_SCHEMA}"
        )
    check_json(BundleContents, found)
    if not found["runs"]:
        raise ValueError(f"{BUNDLE_FILE} lists no run")
    return True


def _run(top: Path, name: str) -> OpenedRun:
    """Return one run of an unpacked bundle, after the checks that every folder of a run goes through."""
    folder = top / RESULTS if name == "." else within(top / RESULTS, name)
    check_run_tree(folder)
    about = read_run(folder)
    if about["state"] != "finished":
        raise UsageError(f"{folder}: the run is {about['state']}, and a bundle holds finished runs only")
    check_unedited(folder)
    check_finished(folder, about)
    if (folder / PARTITION).exists():
        Partition.load(folder / PARTITION)
    check_code_files(top, about.get("code", []))
    return OpenedRun(name, folder, about, run_config(folder))


@contextlib.contextmanager
def _told_as(path: Path, made: Path) -> Iterator[None]:
    """Re-raise errors with the name of the bundle in place of the temporary folder's."""
    try:
        yield
    except RaffedError as error:
        text = str(error).replace(f"{made}/", "").replace(str(made), "")
        raise UsageError(f"{path}: {text}; nothing was unpacked") from error
