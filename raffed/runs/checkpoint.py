"""A run's checkpoints: which exist, what their state.json says, and whether the contents have the
hashes there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from raffed.core.messages import ServerState
from raffed.core.method import Method
from raffed.errors import RunFolderError, check_permitted
from raffed.results.json_files import Json, JsonFileError, read_json
from raffed.results.remote import STATE_FILE
from raffed.runs.best_model import BEST, BestModel
from raffed.runs.integrity import check_file
from raffed.runtime.record_codec import load_server, saved_digest
from raffed.runtime.saved_client_states import UNREADABLE, saved_hashes

CLIENT_STATES = "vaults"
CHECKPOINTS = "checkpoints"
SERVER = "server.safetensors"
MISSING = "missing"
NOT_TEXTS = "its hashes are not texts"
NOT_BEST = "its best model is not a round, a measure, a value and a hash"


class BestRecord(TypedDict):
    """The best model so far: after which round, by which measure, its value, and the hash of the state."""

    round: int
    measure: str
    value: float
    sha256: str


class CheckpointState(TypedDict):
    """The hashes in a checkpoint's state.json. `vaults` maps file → SHA-256.

    `versions` maps a client to the number of rounds done when it last took part. It is there if the selection
    looks at losses, so that the participants cannot be drawn again. `past` maps the number of an earlier
    model of the server from which clients still train to its hash (config/clock.py).
    """

    server_sha256: str
    identity: str
    round_hashes: list[str]
    vaults: dict[str, str]
    best: NotRequired[BestRecord]
    versions: NotRequired[dict[str, int]]
    past: NotRequired[dict[str, str]]


def checkpoints(path: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    return sorted(
        one for one in (path / CHECKPOINTS).glob("round-*") if re.fullmatch(r"round-\d{6,9}", one.name)
    )


def checkpoint_state(checkpoint: Path) -> CheckpointState:
    """Return the contents of a checkpoint's state.json.

    Raises:
        RunFolderError: The file does not have these fields.
    """
    path = checkpoint / STATE_FILE
    try:
        return _typed(read_json(path))
    except JsonFileError as error:
        if isinstance(error.__cause__, OSError):
            check_permitted(path, error.__cause__)
        raise RunFolderError(f"{path}: damaged ({error.why}); delete {checkpoint}") from error
    except (KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path}: damaged ({type(error).__name__}: {error}); delete {checkpoint}"
        ) from error


def _typed(found: Mapping[str, Json]) -> CheckpointState:
    """Return the fields of a state.json, or raise a KeyError or a TypeError."""
    server, identity = found["server_sha256"], found["identity"]
    hashes, states = found["round_hashes"], found["vaults"]
    if not isinstance(server, str) or not isinstance(identity, str):
        raise TypeError(NOT_TEXTS)
    if not isinstance(hashes, list) or not isinstance(states, dict):
        raise TypeError(NOT_TEXTS)
    texts = [text for text in hashes if isinstance(text, str)]
    vaults = {name: text for name, text in states.items() if isinstance(text, str)}
    state: CheckpointState = {
        "server_sha256": server,
        "identity": identity,
        "round_hashes": texts,
        "vaults": vaults,
    }
    last = found.get("versions")
    if isinstance(last, dict):
        state["versions"] = {who: number for who, number in last.items() if isinstance(number, int)}
    past = found.get("past")
    if isinstance(past, dict):
        state["past"] = {number: text for number, text in past.items() if isinstance(text, str)}
    if len(texts) < len(hashes) or len(vaults) < len(states):
        raise TypeError(NOT_TEXTS)
    if "best" in found:
        state["best"] = _best_record(found["best"])
    return state


def _best_record(found: Json) -> BestRecord:
    if not isinstance(found, dict):
        raise TypeError(NOT_BEST)
    round, measure, value, sha256 = (found[name] for name in ("round", "measure", "value", "sha256"))
    if not isinstance(round, int) or not isinstance(measure, str) or not isinstance(sha256, str):
        raise TypeError(NOT_BEST)
    if not isinstance(value, int | float):
        raise TypeError(NOT_BEST)
    return {"round": round, "measure": measure, "value": value, "sha256": sha256}


def state_name(checkpoint: Path) -> str:
    """Return the name of a checkpoint's state.json below the run's folder."""
    return f"{CHECKPOINTS}/{checkpoint.name}/{STATE_FILE}"


def check_checkpoint(checkpoint: Path, files: Mapping[str, str]) -> CheckpointState:
    """Return the state.json of a checkpoint whose files all have the hashes in it. No state is made of them.

    Args:
        checkpoint: The checkpoint's folder.
        files: The hashes in run.json, by which state.json is checked. state.json holds the hashes of
            everything else.

    Raises:
        RunFolderError: A state of the server or of a client is damaged.
    """
    check_file(checkpoint.parents[1], state_name(checkpoint), files, f"delete {checkpoint}")
    about = checkpoint_state(checkpoint)
    for name, sha256 in {SERVER: about["server_sha256"], **other_states(about)}.items():
        if saved_digest(checkpoint / name, ServerState) != sha256:
            raise RunFolderError(
                f"{checkpoint / name}: does not have the hash in state.json; delete {checkpoint}"
            )
    for name, (_, found) in damaged_client_states(checkpoint, about).items():
        what = f"is {found}" if found in (MISSING, UNREADABLE) else "does not have the hash in state.json"
        raise RunFolderError(
            f"{checkpoint / CLIENT_STATES / name}: {what}; put it back, or delete {checkpoint}"
        )
    return about


def best_in(checkpoint: Path, about: CheckpointState, method: Method) -> BestModel | None:
    """Return the best model in a checkpoint that was checked; None if it has none."""
    if (best := about.get("best")) is None:
        return None
    return BestModel(load_server(checkpoint / BEST, method), best["measure"], best["value"])


def past_name(number: int) -> str:
    """Return the name of the file of an earlier model from which clients still train."""
    return f"past-{number:06d}.safetensors"


def past_in(checkpoint: Path, about: CheckpointState, method: Method) -> dict[int, ServerState]:
    """Return the server's earlier states in a checkpoint that was checked, by number."""
    numbers = map(int, about.get("past", {}))
    return {number: load_server(checkpoint / past_name(number), method) for number in numbers}


def other_states(about: CheckpointState) -> dict[str, str]:
    """Return file → recorded hash of the other states of the server in a checkpoint: best and earlier."""
    best = {BEST: about["best"]["sha256"]} if "best" in about else {}
    return best | {past_name(int(number)): sha256 for number, sha256 in about.get("past", {}).items()}


def damaged_client_states(checkpoint: Path, about: CheckpointState) -> dict[str, tuple[str, str]]:
    """Return file → (recorded hash, actual hash) for every client state where the two differ."""
    recorded, found = about["vaults"], saved_hashes(checkpoint / CLIENT_STATES)
    pairs = {
        name: (recorded.get(name, MISSING), found.get(name, MISSING)) for name in sorted({*recorded, *found})
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
