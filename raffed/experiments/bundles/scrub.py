"""What of run.json, sweep.json and item.json goes into a bundle.

Where data lie, where the run was placed and what was warned about do not matter to a reader, and are left
out. The configuration decides the result, so a path or a name in it cannot be taken out. It is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from raffed.config.run import RunConfig
from raffed.config.validation import Json, table_of
from raffed.errors import UsageError
from raffed.experiments.bundles.archive import TRACES
from raffed.experiments.bundles.private_text import Machine
from raffed.results.seal import SEAL

# Of run.json: names of machines, messages with paths, and names of clients and values out of the user's table
LEFT_OUT: Final = ("placement", "error", "dataset", SEAL)
ADVICE: Final = (
    "a bundle takes nothing along that belongs to this account or machine; name it otherwise and run again, "
    "or give --allow {text} if everybody may see it"
)


def trace_name(sha256: str) -> str:
    """Return the name of a file of speeds in a bundle."""
    return f"{TRACES}/{sha256}.csv"


def shared_config(config: RunConfig, machine: Machine, where: str) -> dict[str, Json]:
    """Return a configuration without the places of files. It has the identity of the whole one.

    Raises:
        UsageError: What is left holds something that must not leave.
    """
    tables: dict[str, Json] = json.loads(json.dumps(config.as_dict()))
    table_of(tables["data"])["root"] = None
    table_of(tables["runtime"])["address"] = None
    if config.model.init:
        table_of(tables["model"])["init"] = Path(config.model.init).name
    if config.clock.trace:
        table_of(tables["clock"])["trace"] = trace_name(config.clock.trace_sha256)
    for place, text in _texts(tables):
        refuse(machine, text, f"{where}, {place}", paths=True)
    return tables


def shared_run(about: Mapping[str, Json], machine: Machine, where: str) -> dict[str, Json]:
    """Return what a bundle says about a run, but for its code.

    Args:
        about: The contents of its run.json, which were checked.
        machine: What must not leave.
        where: The run's folder, for messages.

    Raises:
        UsageError: A configuration holds something that must not leave.
    """
    rest = {name: value for name, value in about.items() if name not in ("config", *LEFT_OUT)}
    found = {name: _scrubbed(value, machine) for name, value in rest.items()}
    found["config"] = _checked(about["config"], machine, where)
    for segment in _listed(found.get("segments")):
        segment["said"] = []
    for mine, given in zip(_listed(found.get("earlier")), _listed(about.get("earlier")), strict=True):
        mine["config"] = _checked(given["config"], machine, where)
    return found


def shared_record(about: Mapping[str, Json], machine: Machine, where: str) -> dict[str, Json]:
    """Return what a bundle holds of a sweep.json or item.json.

    Raises:
        UsageError: A configuration in it holds something that must not leave.
    """
    found = {name: _scrubbed(value, machine) for name, value in about.items() if name != SEAL}
    base = table_of(about.get("request")).get("base")
    if base is not None:
        table_of(found["request"])["base"] = _checked(base, machine, where)
    return found


def refuse(machine: Machine, text: str, where: str, *, paths: bool, name: str = "") -> None:
    """Raise a UsageError if a text holds something that must not leave.

    Args:
        machine: What is looked for.
        text: The text.
        where: Where it stands, for the message.
        paths: Whether absolute paths are refused too.
        name: The name of the file.
    """
    found = [*machine.found(text, name), *(machine.paths(text) if paths else ())]
    if found:
        what, said = found[0]
        shown = f" {said}" if said else ""
        raise UsageError(f"{where}: holds {what}{shown}; {ADVICE.format(text=said or 'TEXT')}")


def _checked(value: Json, machine: Machine, where: str) -> Json:
    return shared_config(RunConfig.from_dict(table_of(value)), machine, where)


def _listed(value: Json) -> list[dict[str, Json]]:
    """Return the objects in a list of run.json; empty if there is none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(value: Json, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield (place, text) for every text in JSON, also for the names in objects."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield place or "the configuration", key
            yield from _texts(one, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, place)
    elif isinstance(value, str):
        yield place, value


def _scrubbed(value: Json, machine: Machine) -> Json:
    """Return JSON with all texts scrubbed."""
    if isinstance(value, dict):
        return {key: _scrubbed(one, machine) for key, one in value.items()}
    if isinstance(value, list):
        return [_scrubbed(one, machine) for one in value]
    return machine.scrubbed(value) if isinstance(value, str) else value


__all__ = ["refuse", "shared_config", "shared_record", "shared_run"]
