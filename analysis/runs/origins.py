"""What a run was made of that its configuration does not say: own code, own data, the method's revision.

Runs that differ in it are other experiments, even if their configurations are equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from raffed.results.origin import NO_FILE, Files, changed_files, code_stages, files_by_role

from .files import JsonObject

SHOWN = 8  # digits of a hash that are shown
UNKNOWN = "not recorded"
NAMED = 3  # files that are named one by one
# The parts of own code that must be equal for two methods to be compared. A split is compared by the hash of
# the partition, and metrics measure only.
ROLES = {
    "model": "the network",
    "loss": "the loss",
    "selection": "the selection of participants",
    "schedule": "the schedule of learning rates",
}

Stages = list[tuple[int, Files]]


class Origin(NamedTuple):
    """What a run was made of besides its configuration.

    Attributes:
        stages: the own code as (first round, file → SHA-256). There are several if the run went on with
            changed code.
        data: name in run.json → SHA-256 of own data.
        revision: the revision of the method.
    """

    stages: Stages
    data: dict[str, str]
    revision: object

    @property
    def marks(self) -> dict[str, Any]:
        """Short texts by which labels tell such runs apart."""
        hashes = [digest[:SHOWN] for digest in self.data.values()]
        return {
            "code": _stages_mark(self.stages),
            "data": "+".join(hashes) or UNKNOWN,
            "revision": self.revision,
        }


def origin(file: JsonObject) -> Origin:
    """Return what a run was made of, from its run.json."""
    return Origin(code_stages(file), hashes_of_data(file), file.get("method_revision"))


def hashes_of_data(file: JsonObject) -> dict[str, str]:
    """Return the hashes of own data in run.json, by their names there."""
    return {
        name: str(value)
        for name, value in sorted(file.items())
        if name.startswith(("data_", "dataset_")) and "sha256" in name
    }


def _stages_mark(stages: Stages) -> str:
    """Write `1a2b3c4d` or, of a run that went on with changed code, `1a2b3c4d then 5e6f7a8b from round 3`."""
    (_, files), *later = stages
    return " then ".join([_mark(files), *(f"{_mark(after)} from round {first}" for first, after in later)])


def _mark(files: Mapping[str, str]) -> str:
    """Return the first digits of a single file's hash, or of a hash over all files."""
    if len(files) < 2:
        return next(iter(files.values()), UNKNOWN)[:SHOWN] if files else UNKNOWN
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:SHOWN]


def continued(run_origin: Origin) -> str:
    """Return a sentence about a run that went on with changed code; "" for others."""
    changes = [
        f"from round {first} on with changed code ({_listed(before, after)})"
        for (_, before), (first, after) in zip(run_origin.stages, run_origin.stages[1:], strict=False)
    ]
    return f"its runs were continued {' and '.join(changes)}" if changes else ""


def unlike_parts(left: Origin, other: Origin) -> list[str]:
    """Return in which own code, own data and revision two runs of one method differ."""
    remarks = []
    if left.stages != other.stages:
        pairs = ((left.stages[at][1], other.stages[at][1]) for at in (-1, 0))
        files = next((_listed(*pair) for pair in pairs if pair[0] != pair[1]), "")
        rounds = f"{left.marks['code']} / {other.marks['code']}"
        remarks.append(f"its own code differs ({files or rounds})")
    if left.data != other.data:
        remarks.append(f"its data differ ({left.marks['data']} / {other.marks['data']})")
    if left.revision != other.revision:
        remarks.append(f"the method's revision differs ({left.revision} / {other.revision})")
    return remarks


def _listed(left: Mapping[str, str], other: Mapping[str, str]) -> str:
    changed = changed_files(left, other)
    told = [f"{name} {_short(a)} / {_short(b)}" for name, (a, b) in list(changed.items())[:NAMED]]
    more = len(changed) - NAMED
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _short(digest: str) -> str:
    return digest if digest == NO_FILE else f"{digest[:SHOWN]}…"


class RoleChange(NamedTuple):
    """A role whose code differs between two runs: both hashes, and whether only files of a method differ."""

    what: str
    one: str
    other: str
    shared: bool


def changed_roles(left: JsonObject, other: JsonObject) -> list[RoleChange]:
    """Return which own code of two runs differs that must be equal for comparing their methods.

    A file may hold a network and a method. If only such files differ, it is not known whether the network
    does, and `shared` is true.
    """
    a, b = (files_by_role(file.get("code", [])) for file in (left, other))
    of_methods = a.get("method", {}).keys() | b.get("method", {}).keys()
    changes = []
    for role, what in ROLES.items():
        histories = [_history(file, roles.get(role, {})) for file, roles in ((left, a), (other, b))]
        if role in a and role in b and _plain(histories[0], role) != _plain(histories[1], role):
            changed = {
                name for at in (-1, 0) for name in changed_files(histories[0][at][1], histories[1][at][1])
            }
            marks = [_stages_mark(history) for history in histories]
            changes.append(RoleChange(what, marks[0], marks[1], changed <= of_methods))
    return changes


def _history(file: JsonObject, files: Mapping[str, str]) -> Stages:
    """Return the stages of these files alone."""
    stages: Stages = []
    for first, every in code_stages(file):
        kept = {name: every[name] for name in files if name in every}
        if not stages or stages[-1][1] != kept:
            stages.append((first, kept))
    return stages


def _plain(stages: Stages, role: str) -> Stages:
    """Return stages without the role in the names of files, which only those have whose name occurs twice."""
    return [
        (first, {name.removeprefix(f"{role}: "): digest for name, digest in files.items()})
        for first, files in stages
    ]


def versions(file: JsonObject) -> list[str]:
    """Return the versions of raffed that computed a run, in the order of its rounds."""
    segments = [segment for segment in file.get("segments") or [] if segment["from"] <= segment["to"]]
    told = [part.get("versions") or {} for part in segments or [file]]
    return [text for text in dict.fromkeys(str(listed.get("raffed") or "") for listed in told) if text]
