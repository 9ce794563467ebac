"""run.json: the whole configuration of a run, its state and its hashes."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from raffed.errors import RunFolderError, check_permitted
from raffed.results.atomic import write_text
from raffed.results.folder_names import RUN_FILE as RUN_FILE
from raffed.results.folder_names import SWEEP_FILE
from raffed.results.json_files import Json, JsonFileError, NoJsonFileError, read_json
from raffed.results.packed_records import check_unpacked
from raffed.results.run_contents import RunContents, is_run, problem
from raffed.results.seal import BROKEN, is_broken, sealed


def write_json(path: Path, obj: Mapping[str, Any]) -> None:
    """Write `obj` to `path` in one step, as UTF-8 with sorted keys, two spaces and a newline at the end.

    run.json and sweep.json also get the hash of their contents (seal.py). Equal objects give equal bytes.
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
            writes (results/run_contents.py). The message is one line that begins with the file's name.
    """
    found = read_object(run_dir, RUN_FILE)
    broken = is_broken(found)
    if not is_run(found):
        raise RunFolderError(f"{run_dir / RUN_FILE}: {problem(found)}")
    if broken:
        raise RunFolderError(f"{run_dir / RUN_FILE}: {BROKEN}; put back a copy of it")
    return found


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
            f"{folder}: no {name} here; name a folder that `raffed run --out` made"
        ) from error
    except JsonFileError as error:
        if isinstance(error.__cause__, OSError):
            check_permitted(path, error.__cause__)
        raise RunFolderError(f"{error}; put back a copy of it, or start the run in a new folder") from error


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that decide bits."""
    found = {"python": platform.python_version()}
    for name in ("raffed", "torch", "ray", "numpy", "pyarrow"):
        found[name] = _version(name)
    return found


@cache
def _version(package: str) -> str:
    """Return the version of a package. Each reading parses the whole text about the installed package.

    A checkout of raffed that is used without being installed says its own version.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(importlib.import_module(package).__version__)
