"""What run.json holds: every field is declared here once, with its type and its meaning.

`problem` checks what is read, and knows which fields belong together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeGuard

from typing_extensions import TypedDict

from raffed.config.validation import Doc, Range
from raffed.results.json_files import Form, Json, Shape, check_json

RUN_SCHEMA = 2  # the version that this raffed writes and reads
REQUIRED = (  # what every run.json has
    "schema",
    "run_id",
    "config",
    "identity",
    "method_revision",
    "state",
    "rounds_done",
    "seconds",
    "partition_sha256",
    "transform",
    "inputs",
    "versions",
    "started",
    "hardware",
    "files",
    "segments",
)
_ADVICE = "the file was edited or damaged: put back a copy of it"
LONGEST_SECONDS = 1e11  # three thousand years


def _stays_below(name: str) -> bool:
    return name.isprintable() and name[:1] not in ("", "/") and ".." not in name.split("/")


Noted: TypeAlias = Mapping[str, object]
Count: TypeAlias = Annotated[int, Range(0)]
Name: TypeAlias = Annotated[
    str, Form("a text of printable characters", lambda text: bool(text) and text.isprintable())
]
Sha256: TypeAlias = Annotated[
    str, Form("64 hexadecimal digits", lambda text: re.fullmatch("[0-9a-f]{64}", text) is not None)
]
File: TypeAlias = Annotated[str, Form("the name of a file below the folder", _stays_below)]
State: TypeAlias = Literal["running", "stopped", "failed", "finished"]
Versions: TypeAlias = dict[str, str]
Hardware: TypeAlias = dict[str, str | Count | None]
Segment = TypedDict(
    "Segment",
    {
        "from": Annotated[Count, Doc("First round of the segment, counted from 1.")],
        "to": Annotated[Count, Doc("Last round of the segment.")],
        "started": Name,
        "versions": Versions,
        "hardware": Hardware,
        "said": Annotated[list[str], Doc("Warnings about the folder.")],
        "command": NotRequired[
            Annotated[Name, Doc("The command that computed it; absent where Python did.")]
        ],
        "accepted": NotRequired[
            Annotated[dict[str, list[str]], Doc("Own code that had changed: file → [old hash, new hash].")]
        ],
    },
)


class CodeRecord(TypedDict):
    """The user's own code behind one name of the configuration."""

    role: Name
    reference: Name
    package: Annotated[str, Doc("Package and version; empty for a file.")]
    file: Name
    root: Annotated[Name, Doc("The folder that it was imported from.")]
    files: Annotated[dict[File, Sha256], Doc("Hashes of its source files.")]


class MetricRecord(TypedDict):
    """A metric of the user's own, so that readers need not import its code."""

    name: Name
    better: Literal["higher", "lower", "neither"]
    unit: str
    meaning: str
    reference: Name


class EarlierConfig(TypedDict):
    """What a run was before `raffed extend` or `raffed fork`: its first `until` rounds were computed so."""

    run_id: Name
    identity: Sha256
    until: Count
    config: Annotated[dict[str, Any], Doc("The whole configuration of that time.")]


class Best(TypedDict):
    """The best model of a run: after which round, by which validation measure, and its value."""

    round: Count
    measure: Name
    value: float


class Inputs(TypedDict):
    """Shape of one prepared input, and its type: "float32", or "int64" for ids."""

    shape: list[Count]
    dtype: Name


class Classes(TypedDict):
    """For each class, how many training samples there are, and how many clients have any."""

    samples: list[Count]
    holders: list[Count]


class Hashes(TypedDict):
    """Hashes of the results: of the metric rows, the client states and the server's last weights."""

    metrics: Sha256
    vaults: Sha256
    weights: Sha256


class RunContents(TypedDict, total=False):
    """The fields of run.json. Every run has those of `REQUIRED`."""

    schema: Annotated[Count, Doc("2, the version of this format.")]
    run_id: Annotated[Name, Doc("The run's name.")]
    config: Annotated[
        dict[str, Any],
        Doc("The whole configuration. RunConfig.from_dict checks its fields."),
    ]
    identity: Annotated[Sha256, Doc("Hash of the part of the configuration that decides the result.")]
    method_revision: Annotated[Count, Doc("Revision of the method.")]
    state: Annotated[str, Shape(State), Doc("Whether the run goes on, and how it ended.")]
    rounds_done: Annotated[Count, Doc("Rounds that are complete.")]
    seconds: Annotated[
        float,
        Range(0.0, LONGEST_SECONDS),
        Doc("How long all segments together have worked."),
    ]
    partition_sha256: Annotated[Sha256, Doc("Hash of the partition's lists.")]
    lists_sha256: Annotated[
        Sha256, Doc("Hash of the training lists alone: their lengths, then all indices, little-endian int64.")
    ]
    data_sha256: Annotated[
        Sha256, Doc("Of data of one's own: hash of the arrays, which names them in the cache.")
    ]
    transform: Annotated[
        Name,
        Doc("Style in which inputs were prepared, which is what `data.transform = auto` meant."),
    ]
    versions: Annotated[Versions, Doc("Libraries of the process that began the run.")]
    started: Annotated[Name, Doc("When the run began.")]
    hardware: Annotated[Hardware, Doc("Machine of the process that began the run.")]
    commit: Annotated[str | None, Doc("Commit of raffed with which the run began.")]
    error: Annotated[str | None, Doc("Why the run failed or was stopped.")]
    inputs: Annotated[Inputs, Doc("One prepared input of the network.")]
    dataset: Annotated[
        Noted,
        Doc(
            "What new data need to become inputs of the model: names of the classes, the columns of a table "
            "with their encoding, and the preparation; also the names of the clients. Bundles leave it out."
        ),
    ]
    effective: Annotated[
        Noted,
        Doc(
            "How clients really train. `shared` has a table for each pass, `private` is one for private "
            "training, and `overridden` holds the settings that the method does not follow. `network` has "
            "the network's arguments if the method requires some."
        ),
    ]
    clients: Annotated[Count, Doc("Number of clients of the partition.")]
    classes: Annotated[dict[str, list[int]], Shape(Classes), Doc("Classes of the partition.")]
    placement: Annotated[Noted, Doc("Where the work was done.")]
    hashes: Annotated[dict[str, str], Shape(Hashes), Doc("Of a finished run.")]
    round_hashes: Annotated[list[Sha256], Doc("Of a finished run: hashes of the weights after every round.")]
    contents_sha256: Annotated[Sha256, Doc("Hash of the other fields.")]
    files: Annotated[
        dict[File, Sha256],
        Doc("Hashes of the bytes of the run's files, recorded before a file gets its name."),
    ]
    segments: Annotated[
        list[Segment],
        Doc("One entry for each time that the run was begun or resumed."),
    ]
    code: Annotated[
        list[CodeRecord],
        Doc("One entry for each name in the configuration that is a reference or an entry point."),
    ]
    best: Annotated[Best, Doc("Of a finished run with a validation part: its best model.")]
    ended_early: Annotated[Name, Doc("Why `federation.stop_when` ended the run before its last round.")]
    title: Annotated[str, Doc("Of a run with a method of one's own: the method's title.")]
    metrics: Annotated[
        list[dict[str, str]],
        Shape(list[MetricRecord]),
        Doc("Of a run with metrics of one's own: what each is called and what it means."),
    ]
    earlier: Annotated[
        list[EarlierConfig],
        Doc("Of a run that was extended or forked: what it was before, oldest first."),
    ]


def is_run(found: Mapping[str, Json]) -> TypeGuard[RunContents]:
    """Return whether `found` is what a run writes into run.json."""
    return not problem(found)


def problem(found: Mapping[str, Json]) -> str:
    """Return why `found` is not what a run writes into run.json, and what to do; empty if it is."""
    schema = found.get("schema", RUN_SCHEMA)
    if isinstance(schema, int) and schema != RUN_SCHEMA:
        return (
            f"schema {schema}, and this version of raffed reads {RUN_SCHEMA}; use the version that wrote it"
        )
    why = _wrong(found) or _missing(found) or _unfinished(found) or _gap(found)
    return f"{why}; {_ADVICE}" if why else ""


def _wrong(found: Mapping[str, Json]) -> str:
    try:
        check_json(RunContents, found)
    except ValueError as error:
        return str(error)
    return ""


def _missing(found: Mapping[str, Json]) -> str:
    """Return which fields are missing that every run.json has; empty if none is."""
    lacking = [name for name in REQUIRED if name not in found]
    return f"has no {', '.join(lacking)}" if lacking else ""


def _unfinished(found: Mapping[str, Json]) -> str:
    """Return why a run that is marked as finished cannot be finished; empty for all others."""
    rounds = found.get("round_hashes")
    if found["state"] != "finished":
        return ""
    if "hashes" not in found or not isinstance(rounds, list):
        return f"state is finished, but there is no {'round_hashes' if 'hashes' in found else 'hashes'}"
    if len(rounds) != found["rounds_done"]:
        return f"rounds_done is {found['rounds_done']}, but there are {len(rounds)} round_hashes"
    return ""


def _gap(found: Mapping[str, Json]) -> str:
    """Return why the segments do not fit the rounds done; empty if they do."""
    segments = found["segments"]
    spans = (
        [(one["from"], one["to"]) for one in segments if isinstance(one, dict)]
        if isinstance(segments, list)
        else []
    )
    begins = [1, *(int(str(to)) + 1 for _, to in spans)]
    if [first for first, _ in spans] != begins[: len(spans)] or (
        spans and spans[-1][1] != found["rounds_done"]
    ):
        return f"its segments are not those of {found['rounds_done']} rounds done"
    return ""
