"""run.json: the whole configuration of a run, its state and its hashes."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raffed.core.errors import RunFolderError
from raffed.results.atomic import replacing

RUN_FILE = "run.json"


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
        RunFolderError: there is no such file, or it does not hold a JSON object.
    """
    path = run_dir / name
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(f"{run_dir}: no {name} here; name a folder that `raffed run --out` made") from error
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: not readable as JSON ({error}); start the run in a new folder") from error
    if not isinstance(found, dict):
        raise RunFolderError(f"{path}: holds a {type(found).__name__}, wanted an object with run_id, state, config")
    return found


def versions() -> dict[str, str]:
    """Of Python and the libraries that decide bits."""
    found = {"python": platform.python_version()}
    for name in ("raffed", "torch", "ray", "numpy", "pyarrow"):
        found[name] = importlib.metadata.version(name)
    return found
