"""The Ray that `raffed up` starts on this machine and `raffed down` ends: where it is, and who may join.

Its workers have torch and raffed in memory, so a run that joins it with `--address warm` begins sooner. It is
an own Ray in all else: on loopback, with a random token, in a folder that only this user can enter. The
folder also holds the record of it. A file of the user's cache only says where that folder is, so whoever may
write to the cache gains nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from raffed.config.portable import MARK, is_set, variables
from raffed.data.cache_place import cache_folder
from raffed.errors import UsageError
from raffed.scratch import is_held

RECORD = "standing.json"  # in the folder of the Ray
ENDING_SECONDS = 20.0
ANEW = "`raffed down`, then `raffed up`"
# Variables that decide bits or devices, and are read by processes that this command does not start
DECIDING = (
    *("ATEN_", "CUBLAS_", "CUDA_", "DNNL_", "GLIBC_", "GOMP_", "KMP_", "LD_", "MALLOC_", "MKL_", "NPY_"),
    *("NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "RAFFED_KERNELS", MARK, "TORCH"),
)


@dataclass(frozen=True)
class StandingRay:
    """What is noted about a Ray that stands ready.

    Args:
        address: Its head, as HOST:PORT.
        token: The token that it asks for.
        pid: The process that holds it.
        python: The Python that its processes have.
        code: The state of raffed's files when it began (`code_state`).
        environment: The variables that decide bits, as its processes have them.
    """

    address: str
    token: str
    pid: int
    python: str
    code: str
    environment: dict[str, str]


def pointer() -> Path:
    """Return the file that says where the folder of the Ray is. Homes may be shared by machines."""
    return cache_folder() / f"up-{socket.gethostname()}"


def note(folder: Path, address: str, token: str) -> None:
    """Note a Ray that has started, so that commands of this user find it."""
    about = StandingRay(
        address, token, os.getpid(), sys.executable, code_state(), deciding_variables(os.environ)
    )
    with open(os.open(folder / RECORD, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
        json.dump(asdict(about), file)
    pointer().parent.mkdir(parents=True, exist_ok=True)
    beside = pointer().with_suffix(f".{os.getpid()}")
    beside.write_text(str(folder), encoding="utf-8")
    beside.replace(pointer())


def forget(folder: Path) -> None:
    """Remove the note of the Ray whose folder this is."""
    with contextlib.suppress(OSError):
        if pointer().read_text(encoding="utf-8") == str(folder):
            pointer().unlink()


def standing() -> StandingRay | None:
    """Return what is noted about the Ray that stands ready on this machine, or None if there is none."""
    if (folder := standing_folder()) is None:
        return None
    try:
        return StandingRay(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def standing_folder() -> Path | None:
    """Return the folder of the Ray that stands ready, if it is this user's alone and in use."""
    try:
        folder = Path(pointer().read_text(encoding="utf-8"))
        about = folder.stat()
    except (OSError, ValueError):
        return None
    private = about.st_uid == os.getuid() and not stat.S_IMODE(about.st_mode) & 0o077
    return folder if private and is_held(folder) else None


def joined_ray() -> StandingRay:
    """Return the Ray that `--address warm` names.

    Raises:
        UsageError: There is none, or its processes would not compute what this command asks for.
    """
    there = standing()
    if there is None:
        raise UsageError("--address warm: no Ray stands ready on this machine; `raffed up` starts one")
    if there.python != sys.executable:
        raise UsageError(
            f"--address warm: the Ray that stands ready has the Python {there.python}, and this is "
            f"{sys.executable}; use the same, or {ANEW}"
        )
    if there.code != code_state():
        raise UsageError(f"--address warm: raffed's files have changed since `raffed up`; {ANEW}")
    mine = deciding_variables(os.environ)
    if is_set():  # workers get these variables from the run
        mine = {name: value for name, value in mine.items() if name not in variables()}
    for name in sorted(mine.keys() | there.environment.keys()):
        if mine.get(name) != there.environment.get(name):
            raise UsageError(
                f"--address warm: {name} is {_shown(mine.get(name))} here and "
                f"{_shown(there.environment.get(name))} in the Ray that stands ready; {ANEW}"
            )
    return there


def end_standing() -> bool:
    """End the Ray that stands ready, and return whether there was one.

    Raises:
        UsageError: It does not end.
    """
    there = standing()
    if there is None:
        return False
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(there.pid, sent)
        until = time.monotonic() + ENDING_SECONDS
        while time.monotonic() < until:
            if standing() is None:
                return True
            time.sleep(0.1)
    raise UsageError(f"the Ray that stands ready does not end; end process {there.pid}")


def deciding_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide bits or devices."""
    return {name: value for name, value in environment.items() if name.startswith(DECIDING)}


def code_state() -> str:
    """Return a hash that changes when a file of raffed's changes: names, sizes and times."""
    found = hashlib.sha256()
    for path in _sources():
        about = path.stat()
        found.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _sources() -> Iterator[Path]:
    yield from sorted(Path(__file__).parents[2].rglob("*.py"))


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)


__all__ = ["StandingRay", "end_standing", "forget", "joined_ray", "note", "standing", "standing_folder"]
