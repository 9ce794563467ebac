"""What the system allows this process: limits of the shell (ulimit) and of the container.

A limit is infinite if the system does not say anything about it.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

PIDS = (("pids.max", "pids.current"), ("pids/pids.max", "pids/pids.current"))  # of cgroup versions 2 and 1
SYS_RESOURCE = 24  # number of the capability that is exempt from the limit of processes


def hard(name: str) -> float:
    """Return the hard limit RLIMIT_`name`, such as "NOFILE"."""
    return _limit(name)[1]


def soft(name: str) -> float:
    """Return the soft limit RLIMIT_`name`, which is the one in force."""
    return _limit(name)[0]


def threads_left(cgroup: str = "/sys/fs/cgroup", proc: str = "/proc") -> float:
    """Return how many more processes and threads the limits of the user and of the container allow."""
    left = math.inf
    for most, now in PIDS:
        limit, count = _number(Path(cgroup) / most), _number(Path(cgroup) / now)
        if limit is not None and count is not None:
            left = min(left, limit - count)
    most_of_user = soft("NPROC")
    if math.isfinite(most_of_user) and not _privileged(proc):
        left = min(left, most_of_user - _threads_of_user(proc))
    return max(left, 0.0)


def _limit(name: str) -> tuple[float, float]:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return math.inf, math.inf
    number = getattr(resource, f"RLIMIT_{name}", None)
    if number is None:
        return math.inf, math.inf
    now, most = resource.getrlimit(number)
    infinity = resource.RLIM_INFINITY
    return math.inf if now == infinity else float(now), math.inf if most == infinity else float(most)


def _privileged(proc: str) -> bool:
    """Return whether the limit of processes does not apply here: as root, or with CAP_SYS_RESOURCE."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return True
    value = _field(Path(proc) / "self" / "status", "CapEff:")
    return value is not None and bool(int(value, 16) >> SYS_RESOURCE & 1)


def _threads_of_user(proc: str) -> int:
    """Return the number of threads of all processes of this user that can be seen."""
    count = 0
    for folder in Path(proc).glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid():
                count += int(_field(folder / "status", "Threads:") or 0)
        except OSError:  # the process has ended
            continue
    return count


def _field(path: Path, name: str) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split()[1] for line in lines if line.startswith(name)), None)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # there is no such limit, or it is "max"
        return None
