"""run.json: the whole configuration of a run, its state and its hashes."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raffed.core.errors import RunFolderError, check_permitted
from raffed.results.atomic import replacing

RUN_FILE = "run.json"
_KINDS: dict[str, tuple[type, ...]] = {  # of the fields that anything relies on, where they are there
    "config": (dict,), "error": (str, type(None)), "hashes": (dict,), "identity": (str,), "partition_sha256": (str,),
    "round_hashes": (list,), "rounds_done": (int,), "run_id": (str,), "seconds": (int, float), "state": (str,),
    "versions": (dict,),
}  # fmt: skip
_HASHES = {"weights", "vaults", "metrics"}


def write_json(path: Path, obj: Mapping[str, Any]) -> None:
    """Write `obj` to `path` in one step: UTF-8, keys sorted at every level, two spaces, a newline at the end.

    Equal objects give equal bytes. What JSON cannot say (NaN, infinities, other types) is refused before the file is
    touched.

    Raises:
        ValueError, TypeError: `obj` is not plain JSON.
    """
    text = json.dumps(obj, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")


def read_run(run_dir: Path, name: str = RUN_FILE) -> dict[str, Any]:
    """Return the contents of `run_dir`/run.json, or of another JSON file there.

    Raises:
        RunFolderError: there is no such file, it does not hold a JSON object, or a field in it is of another kind than
            raffed writes.
    """
    path = run_dir / name
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(f"{run_dir}: no {name} here; name a folder that `raffed run --out` made") from error
    except (OSError, ValueError, RecursionError) as error:
        check_permitted(path, error)
        raise RunFolderError(f"{path}: not readable as JSON ({error}); start the run in a new folder") from error
    if not isinstance(found, dict):
        raise RunFolderError(f"{path}: holds a {type(found).__name__}, wanted an object with run_id, state, config")
    return _checked(path, found)


def _checked(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    for name, kinds in _KINDS.items():
        if name in found and (not isinstance(found[name], kinds) or (bool not in kinds and isinstance(found[name], bool))):
            raise RunFolderError(f"{path}: {name} is a {type(found[name]).__name__}, wanted a {kinds[0].__name__}; it was edited")
    hashes = found.get("hashes") or {}
    texts = [*hashes.values(), *found.get("round_hashes", [])]
    if (hashes and set(hashes) != _HASHES) or not all(isinstance(text, str) for text in texts):
        raise RunFolderError(f"{path}: its hashes are not those of a run; it was edited")
    if not math.isfinite(found.get("seconds", 0.0)):
        raise RunFolderError(f"{path}: seconds is not a number; it was edited")
    return found


def versions() -> dict[str, str]:
    """Of Python and the libraries that decide bits."""
    found = {"python": platform.python_version()}
    for name in ("raffed", "torch", "ray", "numpy", "pyarrow"):
        found[name] = importlib.metadata.version(name)
    return found
