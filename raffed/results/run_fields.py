"""The check of what is read from run.json: the type of every field, and which fields belong together.

The fields are declared in `raffed.results.run_contents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from raffed.config.validation import check_json, fields_of, markers_of
from raffed.results.json_files import Json
from raffed.results.run_contents import RunContents, Since

RUN_SCHEMA = 2  # the newest version that this raffed writes and reads
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
    why = _wrong(found) or _missing(found) or _unfinished(found) or _gap(found)
    return f"{why}; {_ADVICE}" if why else ""


def _wrong(found: Mapping[str, Json]) -> str:
    try:
        check_json(RunContents, dict(found))
    except ValueError as error:
        return str(error)
    return ""


def _missing(found: Mapping[str, Json]) -> str:
    """Return which fields are missing that every run.json of its schema has; empty if none is."""
    schema = found.get("schema", RUN_SCHEMA)
    lacking = [
        name
        for name, kind in fields_of(RunContents).items()
        for one in markers_of(kind)
        if name not in found and isinstance(one, Since) and isinstance(schema, int) and one.schema <= schema
    ]
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
