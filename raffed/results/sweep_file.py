"""sweep.json: its contents, and the one function that reads it.

The reader gets what raffed writes, or one error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, NotRequired, Required, TypeAlias, cast

from typing_extensions import TypedDict

from raffed.config.validation import Json, Length, Range
from raffed.errors import RunFolderError
from raffed.results.files import Shape, check_json
from raffed.results.runfile import BROKEN, folder_name, is_broken, read_object
from raffed.results.runfile import SWEEP_FILE as SWEEP_FILE

SWEEP_SCHEMA = 1
SEED_AXIS = "seed"  # trials of one setting that differ in it are compared by their mean score
# Folders below that of a method; the last one holds damaged runs
TRIALS, FINALS, DAMAGED = "trials", "final", "damaged"
Protocol: TypeAlias = Literal["validation", "paper"]
Select: TypeAlias = Literal["global", "personal", "mean"]
State: TypeAlias = Literal["running", "finished", "stopped"]
Count: TypeAlias = Annotated[int, Range(0)]
Scalar: TypeAlias = str | int | float | bool | None
Setting: TypeAlias = Scalar | list[Scalar]  # the value of an argument, such as [8, 16] for model.args.hidden
ADVICE = "put back the file as it was, or start the sweep in a new folder"


class TrialRecord(TypedDict, total=False):
    """A trial.

    `number` is its place in the order in which settings were proposed. `reports` holds [round, score] of what
    the search has learned from it.
    """

    number: Count
    name: Required[str]
    settings: Required[Annotated[dict[str, Json], Shape(dict[str, Setting])]]
    state: Required[str]
    rounds: Count
    seconds: float
    score: float | None
    error: str | None
    reports: list[Annotated[list[float], Length(2, 2)]]


class FinalRecord(TypedDict):
    """A final run: its seed, its folder below that of the sweep, and its state."""

    seed: Count
    folder: str
    state: str


class MethodRecord(TypedDict, total=False):
    """What is known about a method.

    `space` maps an axis to its values. `chosen` and `final` exist once a setting has been chosen.
    """

    space: dict[str, list[Json]]
    budget: Count
    trials: list[TrialRecord]
    cost: dict[str, float]
    chosen: TrialRecord | None
    final: list[FinalRecord]


class RequestRecord(TypedDict, total=False):
    """The description of a raffed.search.request.Request, which checks its values."""

    base: Required[dict[str, Json]]
    methods: Required[list[str]]
    protocol: Required[Protocol]
    select: Required[Select]
    args: dict[str, dict[str, Json]]
    grid: dict[str, list[Json]]
    trials: Count | None
    seeds: Count
    scheduler: str
    search: str
    score: str
    fill: str


class SweepRecord(TypedDict):
    """The whole contents of sweep.json."""

    schema: Annotated[int, Range(1, SWEEP_SCHEMA)]
    contents_sha256: NotRequired[str]
    optuna: NotRequired[str]  # the version of Optuna that proposes the settings
    request: Annotated[dict[str, Json], Shape(RequestRecord)]
    meaning: NotRequired[str]
    state: Annotated[str, Shape(State)]
    methods: dict[str, MethodRecord]


def read_sweep(folder: Path) -> SweepRecord:
    """Return the contents of OUT/sweep.json.

    Raises:
        RunFolderError: The file does not exist, or is not as raffed writes it. The message names the place in
            the file.
    """
    path = folder / SWEEP_FILE
    contents = read_object(folder, SWEEP_FILE)
    try:
        check_json(SweepRecord, contents)
        _check_names(cast("SweepRecord", contents))
        if is_broken(contents):
            raise ValueError(BROKEN)
    except ValueError as error:
        raise RunFolderError(f"{path}: {error}; {ADVICE}") from error
    return cast("SweepRecord", contents)


def _check_names(sweep: SweepRecord) -> None:
    """Check that names that become parts of paths stay below the sweep's folder.

    Only methods that were asked for may have results.
    """
    asked = sweep["request"]["methods"]
    methods = [str(name) for name in asked] if isinstance(asked, list) else []
    for name in methods:
        if not re.fullmatch(r"\w[\w-]*|[^:\n]+:[A-Za-z_][\w.]*", name):
            raise ValueError(f"request.methods holds {name[:60]!r}, which is not the name of a method")
    for method, about in sweep["methods"].items():
        if method not in methods:
            raise ValueError(f"methods.{method[:60]!r} is not among request.methods")
        for index, run in enumerate(about.get("final", [])):
            wanted = f"{folder_name(method)}/{FINALS}/seed-{run['seed']}"
            if run["folder"] != wanted:
                raise ValueError(
                    f"methods.{method}.final[{index}].folder is {run['folder'][:60]!r}, but must be "
                    f"{wanted!r}"
                )
