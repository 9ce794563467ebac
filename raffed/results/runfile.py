"""run.json: the whole configuration of a run, its state and its hashes."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from typing_extensions import TypedDict

from raffed.config.validation import Doc, Json, Range
from raffed.errors import RunFolderError, check_permitted
from raffed.results.files import (
    Form,
    JsonFileError,
    NoJsonFileError,
    Shape,
    check_json,
    read_json,
    write_text,
)

# Names of methods as folders may be called.


RUN_FILE = "run.json"
SWEEP_FILE = "sweep.json"
MAKERS = {RUN_FILE: "run", SWEEP_FILE: "tune", "item.json": "reproduce", "study.json": "reproduce"}


def folder_name(name: str) -> str:
    """Return a name as a folder may be called: itself, or for a reference a safe text with a hash.

    Two names never give the same folder.

    Args:
        name: A name as a configuration stores it.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if safe == name else f"{safe[-80:] or 'own'}-{digest}"


# Packed records: many runs in one file, which only `raffed report` reads as it is.


RECORDS_FILE = "records.parquet"


def check_unpacked(folder: Path) -> None:
    """Raise a RunFolderError if a folder, or a folder directly inside it, holds packed records.

    Commands that read or continue runs call it, because to them packed records look like an empty folder.
    """
    for place in (folder / RECORDS_FILE, *sorted(folder.glob(f"*/{RECORDS_FILE}"))):
        if place.is_file():
            raise RunFolderError(
                f"{place.parent}: these are packed records, which only `raffed report` can read; unpack them "
                f"first: python -m raffed.reproductions.pages.pack_records --unpack {place.parent} --out "
                "NEW_FOLDER"
            )


# The hash that run.json and sweep.json hold of their own contents.
#
# Their other fields are the only record of many numbers: seconds, counts, the scores of trials. A damaged
# disk that changes one digit would otherwise change a report without a word. It is no protection against a
# forger.


SEAL = "contents_sha256"
BROKEN = "the file was edited or damaged, because its contents no longer have the hash that it holds of them"


def seal_of(contents: Mapping[str, Json]) -> str:
    """Return the SHA-256 (hex) of what a JSON object holds, without its seal. Layout and order do not count.

    Raises:
        ValueError, TypeError: `contents` is not plain JSON.
    """
    rest = {name: value for name, value in contents.items() if name != SEAL}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def sealed(contents: Mapping[str, Json]) -> dict[str, Json]:
    """Return a JSON object with its seal."""
    return {**contents, SEAL: seal_of(contents)}


def is_broken(contents: Mapping[str, Json]) -> bool:
    """Return whether a JSON object holds a seal that does not fit."""
    return SEAL in contents and contents[SEAL] != seal_of(contents)


# What run.json holds: every field is declared here once, with its type and its meaning.
#
# `problem` checks what is read, and knows which fields belong together.


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
    """Hashes of the results: of the metric rows, the client states and the server's last weights.

    `kept` is there only in a run that was unpacked from records. They leave out the training losses of single
    clients, and it is the hash of the rows without these.
    """

    metrics: Sha256
    vaults: Sha256
    weights: Sha256
    kept: NotRequired[Sha256]


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
            "with their encoding, and the preparation; also names of data and clients. Bundles leave it out."
        ),
    ]
    effective: Annotated[
        Noted,
        Doc(
            "How clients really train. `shared` has a table for each pass, `private` is one for private "
            "training, and `overridden` holds the settings that the method does not follow. `steps` is the "
            "mean over clients of their steps of shared training in the first round. `network` has the "
            "network's arguments if the method requires some."
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
    engine: Annotated[
        dict[str, Any],
        Doc(
            "Of a run of an author's engine: family, commit, licence, flags, versions of its interpreter, "
            "traps found in its code, attributes that are not in the checkpoint, hashes of the state after "
            "every round, and the signature of the checkpoint by the account that wrote it."
        ),
    ]
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


def problem(contents: Mapping[str, Json]) -> str:
    """Return why `contents` is not what a run writes into run.json, and what to do; empty if it is."""
    schema = contents.get("schema", RUN_SCHEMA)
    if isinstance(schema, int) and schema != RUN_SCHEMA:
        return (
            f"schema {schema}, and this version of raffed reads {RUN_SCHEMA}; use the version that wrote it"
        )
    try:
        check_json(RunContents, contents)
    except ValueError as error:
        return f"{error}; {_ADVICE}"
    why = _missing(contents) or _contradiction(cast("RunContents", contents))
    return f"{why}; {_ADVICE}" if why else ""


def _missing(contents: Mapping[str, Json]) -> str:
    """Return which fields are missing that every run.json has; empty if none is."""
    lacking = [name for name in REQUIRED if name not in contents]
    return f"has no {', '.join(lacking)}" if lacking else ""


def _contradiction(run: RunContents) -> str:
    """Return which fields of a run do not fit each other; empty if all do."""
    done, rounds, segments = run["rounds_done"], run.get("round_hashes"), run["segments"]
    if run["state"] == "finished":
        if "hashes" not in run or rounds is None:
            return f"state is finished, but there is no {'round_hashes' if 'hashes' in run else 'hashes'}"
        if len(rounds) != done:
            return f"rounds_done is {done}, but there are {len(rounds)} round_hashes"
    begins = [1, *(segment["to"] + 1 for segment in segments)]
    if segments and [*(segment["from"] for segment in segments), done + 1] != begins:
        return f"its segments are not those of {done} rounds done"
    return ""


def write_json(path: Path, obj: Mapping[str, Any]) -> None:
    """Write `obj` to `path` in one step, as UTF-8 with sorted keys, two spaces and a newline at the end.

    run.json and sweep.json also get the hash of their contents. Equal objects give equal bytes.
    What JSON cannot express (NaN, infinities, other types) is refused before the file is touched.

    Raises:
        ValueError, TypeError: `obj` is not plain JSON.
    """
    write_text(path, json_text(sealed(obj) if path.name in (RUN_FILE, SWEEP_FILE) else obj))


def json_text(obj: Mapping[str, Any]) -> str:
    """Return the text that `write_json` writes for an object."""
    return json.dumps(obj, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read_run(run_dir: Path) -> RunContents:
    """Return the contents of `run_dir`/run.json, completely checked.

    Raises:
        RunFolderError: The file does not exist, does not hold a JSON object, or is not a run.json that a run
            writes (results/runfile.py). The message is one line that begins with the file's name.
    """
    contents = read_object(run_dir, RUN_FILE)
    if why := problem(contents):
        raise RunFolderError(f"{run_dir / RUN_FILE}: {why}")
    if is_broken(contents):
        raise RunFolderError(f"{run_dir / RUN_FILE}: {BROKEN}; put back a copy of it")
    return cast("RunContents", contents)


def has_diverged(state: str, error: str | None) -> bool:
    """Return whether a run ended because its training diverged, by the state and the error of its run.json.

    It would end in the same way each time, so nothing is left to do for it. The error of such a run ends with
    the advice to clip gradients (core/aggregation/exact_sums.py).
    """
    return state == "failed" and "clip_norm" in (error or "")


def read_object(folder: Path, name: str) -> dict[str, Json]:
    """Return the JSON object in a file of a folder that raffed made.

    Raises:
        RunFolderError: The file does not exist, or does not hold a JSON object.
    """
    path = folder / name
    try:
        return read_json(path)
    except NoJsonFileError as error:
        check_unpacked(folder)
        raise RunFolderError(
            f"{folder}: no {name} here; name a folder that `raffed {MAKERS[name]} --out` made"
        ) from error
    except JsonFileError as error:
        if isinstance(error.__cause__, OSError):
            check_permitted(path, error.__cause__)
        raise RunFolderError(f"{error}; put back a copy of it, or start the run in a new folder") from error


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that decide bits."""
    by_name = {"python": platform.python_version()}
    for name in ("raffed", "torch", "ray", "numpy", "pyarrow"):
        by_name[name] = _version(name)
    return by_name


@cache
def _version(package: str) -> str:
    """Return the version of a package. Each reading parses the whole text about the installed package.

    A checkout of raffed that is used without being installed says its own version.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(importlib.import_module(package).__version__)
