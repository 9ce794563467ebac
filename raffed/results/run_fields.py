"""The fields of run.json: which fields exist, what each holds, and which belong together.

field                           contents
------------------------------  -------------------------------------------------------------------------
schema                          1, or 2: version 2 added `files` and `segments`
run_id                          the run's name
config                          the whole configuration; RunConfig.from_dict checks its own fields
identity                        SHA-256 of the part of the configuration that decides the result
started, seconds                when the run began; how long all its segments together have worked
versions, hardware, commit      of the process that began the run
clients, classes                of the partition
partition_sha256                hash of the partition's lists
data_sha256                     of data of one's own: hash of the arrays, which names them in the cache
transform                       style in which inputs were prepared: what `data.transform = auto` meant;
                                absent in runs of earlier versions
inputs                          shape and type of one prepared input of the network; absent in runs of
                                earlier versions
effective                       how clients really train: `shared` has a table for each pass, `private` one
                                for private training, and `overridden` the settings of the configuration
                                that the method does not follow; absent in runs of earlier versions
rounds_done, state, error       how far the run got
placement, auto                 where the work was done; what `execution = auto` chose
hashes                          of a finished run: of its weights, client states (`vaults`) and rows
round_hashes                    of a finished run: of the weights after every round
files                           name below the folder → SHA-256 of its bytes; recorded before a file gets
                                its name
segments                        one entry for each time that the run was begun or resumed: rounds `from` and
                                `to`, when, versions, hardware, and the warnings about the folder (`said`);
                                `accepted`: own code that had changed, file → [old hash, new hash]
code                            of a run with own code: one entry for each name in the configuration that is a
                                reference or an entry point: role, reference, package and version, file, the
                                folder that it was imported from (`root`), and the hashes of its source files
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TypeGuard

from raffed.results.json_files import Json
from raffed.results.run_contents import RunContents

RUN_SCHEMA = 2  # the newest version that this raffed writes and reads
STATES = ("running", "stopped", "failed", "finished")
HASHES = ("metrics", "vaults", "weights")
LONGEST_SECONDS = 1e11  # three thousand years
SHOWN = 40  # characters of a value that a message shows
_HASH = re.compile(r"[0-9a-f]{64}")
Test = Callable[[Json], bool]


def _text(value: Json) -> bool:
    return isinstance(value, str)


def _name(value: Json) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _hash(value: Json) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LONGEST_SECONDS


def _object(value: Json) -> bool:
    return isinstance(value, dict)


def _map_of(test: Test) -> Test:
    return lambda value: isinstance(value, dict) and all(test(one) for one in value.values())


def _list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(test(one) for one in value)


def _or_null(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _fields(**wanted: Test) -> Test:
    return _fields_or({}, wanted)


def _fields_or(optional: Mapping[str, Test], wanted: Mapping[str, Test]) -> Test:
    return lambda value: (
        isinstance(value, dict)
        and set(wanted) <= set(value) <= {*wanted, *optional}
        and all(test(value[name]) for name, test in {**optional, **wanted}.items() if name in value)
    )


def _plain(value: Json) -> bool:
    return value is None or _text(value) or _count(value)


def _inside(value: Json) -> bool:
    """Return whether a value is a table name → hash whose names stay below the folder."""
    return isinstance(value, dict) and all(
        _name(name) and not name.startswith("/") and ".." not in name.split("/") and _hash(one)
        for name, one in value.items()
    )


_VERSIONS, _HARDWARE = _map_of(_text), _map_of(_plain)
_SEGMENT = _fields_or(
    {"accepted": _map_of(_list_of(_text))},
    {
        "from": _count,
        "to": _count,
        "started": _name,
        "versions": _VERSIONS,
        "hardware": _HARDWARE,
        "said": _list_of(_text),
    },
)
_CODE = _fields(role=_name, reference=_name, package=_text, file=_name, root=_name, files=_inside)
_FIELDS: dict[str, tuple[Test, str]] = {
    "schema": (_count, "a whole number"),
    "run_id": (_name, "a text"),
    "config": (_object, "an object"),
    "identity": (_hash, "64 hexadecimal digits"),
    "state": (lambda value: value in STATES, f"one of {', '.join(STATES)}"),
    "rounds_done": (_count, "a whole number of 0 or more"),
    "seconds": (_seconds, f"a number from 0 to {LONGEST_SECONDS:g}"),
    "partition_sha256": (_hash, "64 hexadecimal digits"),
    "data_sha256": (_hash, "64 hexadecimal digits"),
    "transform": (_name, "a text"),
    "versions": (_VERSIONS, "an object of texts"),
    "started": (_name, "a text"),
    "hardware": (_HARDWARE, "an object of texts and whole numbers"),
    "commit": (_or_null(_text), "a text or null"),
    "error": (_or_null(_text), "a text or null"),
    "method_revision": (_count, "a whole number"),
    "clients": (_count, "a whole number of 0 or more"),
    "classes": (
        _fields(samples=_list_of(_count), holders=_list_of(_count)),
        "an object with lists of samples and holders",
    ),
    "inputs": (
        _fields(shape=_list_of(_count), dtype=_name),
        "an object with the shape and the dtype of an input",
    ),
    "effective": (_object, "an object"),
    "placement": (_object, "an object"),
    "auto": (_object, "an object"),
    "hashes": (_fields(**dict.fromkeys(HASHES, _hash)), f"an object with the hashes {', '.join(HASHES)}"),
    "round_hashes": (_list_of(_hash), "a list of hashes"),
    "files": (_inside, "an object: name of a file below the folder → hash"),
    "segments": (_list_of(_SEGMENT), "a list of objects with from, to, started, versions, hardware, said"),
    "code": (_list_of(_CODE), "a list of objects with role, reference, package, file, root, files"),
}
_ALWAYS = (
    "schema",
    "run_id",
    "config",
    "identity",
    "state",
    "rounds_done",
    "seconds",
    "partition_sha256",
    "versions",
)
_SINCE_2 = ("files", "segments")
_ADVICE = "the file was edited or damaged: put back a copy of it"


def is_run(found: Mapping[str, Json]) -> TypeGuard[RunContents]:
    """Return whether `found` is what a run writes into run.json."""
    return not problem(found)


def problem(found: Mapping[str, Json]) -> str:
    """Return why `found` is not what a run writes into run.json, and what to do; empty if it is."""
    schema = found.get("schema", RUN_SCHEMA)
    if isinstance(schema, int) and not isinstance(schema, bool) and not 1 <= schema <= RUN_SCHEMA:
        return (
            f"schema {schema}, and this version of raffed reads 1 to {RUN_SCHEMA}; use the version that "
            f"wrote it"
        )
    why = (
        _unknown(found)
        or _missing(found, schema == RUN_SCHEMA)
        or _wrong(found)
        or _unfinished(found)
        or _gap(found)
    )
    return f"{why}; {_ADVICE}" if why else ""


def _unknown(found: Mapping[str, Json]) -> str:
    for name in found:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name.lower(), _FIELDS, n=1, cutoff=0.5)
            return f"holds the unknown field {_shown(name)}" + (
                f" (did you mean {near[0]!r}?)" if near else ""
            )
    return ""


def _missing(found: Mapping[str, Json], newest: bool) -> str:
    lacking = [name for name in (*_ALWAYS, *(_SINCE_2 if newest else ())) if name not in found]
    return f"has no {', '.join(lacking)}" if lacking else ""


def _wrong(found: Mapping[str, Json]) -> str:
    for name, value in found.items():
        test, wanted = _FIELDS[name]
        if not test(value):
            return f"{name} is {_shown(value)}, but must be {wanted}"
    return ""


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
    """Return why the segments do not fit the rounds done; empty if they do, or if there are none."""
    segments = found.get("segments", [])
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


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
