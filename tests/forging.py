"""Changing the folder of a run so that what it says of its files fits again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raffed.own import gate, located
from raffed.results.runfile import SEAL, json_text, sealed

FEWEST: dict[str, Any] = {  # fields that a run's run.json may have
    "schema": 2,
    "run_id": "a",
    "config": {},
    "identity": "0" * 64,
    "method_revision": 1,
    "state": "running",
    "rounds_done": 3,
    "seconds": 1.5,
    "partition_sha256": "1" * 64,
    "transform": "plain",
    "inputs": {"shape": [1, 8, 8], "dtype": "float32"},
    "versions": {"torch": "2.14.1"},
    "started": "now",
    "hardware": {"cores": 2},
    "files": {"metrics/part-000000.parquet": "2" * 64},
    "segments": [
        {"from": 1, "to": 3, "started": "now", "versions": {}, "hardware": {"cores": 2}, "said": []},
    ],
}


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a JSON file says, also its hash of its own contents if it has one.

    It is written as raffed writes it, unless it holds what raffed writes nowhere.
    """
    found = json.loads(path.read_text())
    change(found)
    if SEAL in found:
        found = sealed(found)
    try:
        path.write_bytes(json_text(found).encode())
    except ValueError:
        path.write_text(json.dumps(found))


def forget_references() -> None:
    """Forget what was read and said, and where code lies, as a new process knows nothing of it."""
    for known in gate.state():
        known.clear()
    located.PLACES.clear()


def sha256(path: Path) -> str:
    """Of the bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def resealed(run: Path) -> None:
    """Let run.json hold the hashes of the files as they are now, as a careful forger would."""
    files = [
        run / "partition.npz",
        *run.glob("metrics/part-*.parquet"),
        *run.glob("checkpoints/round-*/state.json"),
    ]
    hashes = {one.relative_to(run).as_posix(): sha256(one) for one in files}
    edited(run / "run.json", lambda about: about["files"].update(hashes))
