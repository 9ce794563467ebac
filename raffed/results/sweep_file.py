"""sweep.json: its contents, and the one function that reads it.

The reader gets what raffed writes, or one error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict, TypeGuard, get_args

from raffed.errors import RunFolderError
from raffed.results.folder_names import folder_name
from raffed.results.json_files import Json, JsonFileError, NoJsonFileError, read_json
from raffed.results.json_shape import (
    anything,
    count,
    many,
    maybe,
    number,
    one_of,
    record,
    scalar,
    table,
    text,
)
from raffed.results.packed_records import check_unpacked

SWEEP_FILE = "sweep.json"
SWEEP_SCHEMA = 1
# Folders below that of a method; the last one holds damaged runs
TRIALS, FINALS, DAMAGED = (
    "trials",
    "final",
    "damaged",
)
Protocol: TypeAlias = Literal["validation", "paper"]
Select: TypeAlias = Literal["global", "personal", "mean"]
STATES = ("running", "finished", "stopped")
ADVICE = "put back the file as it was, or start the sweep in a new folder"


class TrialRecord(TypedDict, total=False):
    """A trial.

    `number` is its place in the order in which settings were proposed. `reports` holds [round, score] of what
    the search has learned from it.
    """

    number: int
    name: str
    settings: dict[str, Json]
    state: str
    rounds: int
    seconds: float
    score: float | None
    error: str | None
    reports: list[list[float]]


class FinalRecord(TypedDict):
    """A final run: its seed, its folder below that of the sweep, and its state."""

    seed: int
    folder: str
    state: str


class MethodRecord(TypedDict, total=False):
    """What is known about a method.

    `space` maps an axis to its values. `chosen` and `final` exist once a setting has been chosen.
    """

    space: dict[str, list[Json]]
    budget: int
    trials: list[TrialRecord]
    cost: dict[str, float]
    chosen: TrialRecord | None
    final: list[FinalRecord]


class SweepRecord(TypedDict):
    """The whole contents of sweep.json. `request` is the description of a
    raffed.experiments.tuning.request.Request.
    """

    schema: int
    request: dict[str, Json]
    meaning: str
    state: str
    methods: dict[str, MethodRecord]


_TRIAL = record(
    {"name": text, "settings": table(scalar), "state": text},
    {
        "number": count,
        "rounds": count,
        "seconds": number,
        "score": maybe(number),
        "error": maybe(text),
        "reports": many(many(number, length=2)),
    },
)
_METHOD = record(
    {},
    {
        "space": table(many(anything)),
        "budget": count,
        "trials": many(_TRIAL),
        "cost": table(number),
        "chosen": maybe(_TRIAL),
        "final": many(record({"seed": count, "folder": text, "state": text})),
    },
)
_REQUEST = record(
    {
        "base": table(anything),
        "methods": many(text),
        "protocol": one_of(*get_args(Protocol)),
        "select": one_of(*get_args(Select)),
    },
    {
        "args": table(table(anything)),
        "grid": table(many(anything)),
        "trials": maybe(count),
        "seeds": count,
        "scheduler": text,
        "search": text,
        "score": text,
    },
)
_SWEEP = record(
    {
        "schema": one_of(SWEEP_SCHEMA),
        "request": _REQUEST,
        "state": one_of(*STATES),
        "methods": table(_METHOD),
    },
    {"meaning": text},
)


def read_sweep(folder: Path) -> SweepRecord:
    """Return the contents of OUT/sweep.json.

    Raises:
        RunFolderError: The file does not exist, or is not as raffed writes it. The message names the place in
            the file.
    """
    path = folder / SWEEP_FILE
    try:
        found = read_json(path)
    except NoJsonFileError as error:
        check_unpacked(folder)
        raise RunFolderError(
            f"{folder}: no {SWEEP_FILE} here; name a folder that `raffed tune --out` made"
        ) from error
    except JsonFileError as error:
        raise RunFolderError(f"{error}; {ADVICE}") from error
    try:
        return _checked(found)
    except ValueError as error:
        raise RunFolderError(f"{path}: {error}; {ADVICE}") from error


def _checked(found: dict[str, Json]) -> SweepRecord:
    if not _is_sweep(found):
        raise ValueError("is not a sweep")
    _check_names(found)
    return found


def _is_sweep(found: dict[str, Json]) -> TypeGuard[SweepRecord]:
    schema = found.get("schema")
    if isinstance(schema, int) and schema > SWEEP_SCHEMA:
        raise ValueError(f"written by a later raffed (schema {schema}, this one reads {SWEEP_SCHEMA})")
    _SWEEP("", dict(found))
    return True


def _check_names(found: SweepRecord) -> None:
    """Check that names that become parts of paths stay below the sweep's folder.

    Only methods that were asked for may have results.
    """
    asked = found["request"]["methods"]
    methods = [str(name) for name in asked] if isinstance(asked, list) else []
    for name in methods:
        if not re.fullmatch(r"\w[\w-]*|[^:\n]+:[A-Za-z_][\w.]*", name):
            raise ValueError(f"request.methods holds {name[:60]!r}, which is not the name of a method")
    for method, about in found["methods"].items():
        if method not in methods:
            raise ValueError(f"methods.{method[:60]!r} is not among request.methods")
        for index, one in enumerate(about.get("final", [])):
            wanted = f"{folder_name(method)}/{FINALS}/seed-{one['seed']}"
            if one["folder"] != wanted:
                raise ValueError(
                    f"methods.{method}.final[{index}].folder is {one['folder'][:60]!r}, but must be "
                    f"{wanted!r}"
                )
