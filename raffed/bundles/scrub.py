"""What of run.json and sweep.json goes into a bundle: not the places of the data and of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raffed.bundles.archive import TRACES
from raffed.config.run import RunConfig
from raffed.config.validation import Json, table_of
from raffed.results.seal import SEAL

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
    table_of(tables["runtime"])["address"] = None
    if config.model.init:
        table_of(tables["model"])["init"] = Path(config.model.init).name
    if config.clock.trace:
        table_of(tables["clock"])["trace"] = trace_name(config.clock.trace_sha256)
    return tables


def shared_run(about: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a bundle says about a run, but for its code.

    Args:
        about: The contents of its run.json, which were checked.
    """
    shared = {name: value for name, value in about.items() if name not in LEFT_OUT}
    shared["config"] = shared_config(about["config"])
    shared["segments"] = [{**segment, "said": []} for segment in _listed(about.get("segments"))]
    if "earlier" in about:
        shared["earlier"] = [
            {**run, "config": shared_config(run["config"])} for run in _listed(about["earlier"])
        ]
    return shared


def shared_record(about: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a bundle holds of a sweep.json or item.json."""
    shared = {name: value for name, value in about.items() if name != SEAL}
    request = table_of(about.get("request"))
    if "base" in request:
        shared["request"] = {**request, "base": shared_config(request["base"])}
    return shared


def _listed(value: Json) -> list[dict[str, Json]]:
    """Return the objects in a list of run.json; empty if there is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


__all__ = ["shared_config", "shared_record", "shared_run", "trace_name"]
