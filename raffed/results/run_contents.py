"""The types of what run.json holds. `raffed.results.run_fields` explains the fields and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypedDict

from typing_extensions import NotRequired

Noted: TypeAlias = Mapping[str, object]
Segment = TypedDict(
    "Segment",
    {
        "from": int,
        "to": int,
        "started": str,
        "versions": dict[str, str],
        "hardware": dict[str, str | int | None],
        "said": list[str],
        "accepted": NotRequired[dict[str, list[str]]],
    },
)


class CodeRecord(TypedDict):
    """The user's own code behind one name of the configuration."""

    role: str
    reference: str
    package: str
    file: str
    root: str
    files: dict[str, str]


class Inputs(TypedDict):
    """Shape of one prepared input, and its type: "float32", or "int64" for ids."""

    shape: list[int]
    dtype: str


class RunContents(TypedDict, total=False):
    """The fields of run.json. Those of older versions, and of runs that are not finished, are fewer."""

    schema: int
    run_id: str
    config: dict[str, Any]
    identity: str
    method_revision: int
    state: str
    rounds_done: int
    seconds: float
    partition_sha256: str
    data_sha256: str
    transform: str
    versions: dict[str, str]
    started: str
    hardware: dict[str, str | int | None]
    commit: str | None
    error: str | None
    inputs: Inputs
    effective: Noted
    clients: int
    classes: dict[str, list[int]]
    placement: Noted
    auto: Noted
    hashes: dict[str, str]
    round_hashes: list[str]
    files: dict[str, str]
    segments: list[Segment]
    code: list[CodeRecord]
