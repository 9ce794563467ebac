"""Environments in which Ray cannot start, or not well: what is wrong, and how to remedy it.

There is one table for all commands. Obstacles that can be seen without Ray are checked before Ray is started,
and `raffed doctor` warns of them. Others only appear when Ray starts, and are recognised by the words in its
logs.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raffed.budget import free_memory
from raffed.errors import UsageError
from raffed.runtime.machine import usable_cores
from raffed.runtime.ray_backend import limits
from raffed.runtime.ray_backend.private_folder import places, unfit

LOOPBACK = "127.0.0.1"
# Length of the longest path of a socket of Ray
INSIDE = len("/r/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
FILES = 128  # of one process; with 64, Ray starts but cannot start actors
FEW_FILES = 1024
THREADS, THREADS_PER_CORE = 350, 60  # an estimate for all of Ray's processes and the actors
SPACE = 4e9  # bytes of address space of a Ray process, in addition to the object store
STORE_SHARE = 0.3  # share of the memory that Ray maps for its object store
MEMORY = 5e8  # bytes, which is about what Ray's own processes take
SHARED = 1e9  # bytes
SERIAL = "or run without Ray: `raffed run --execution serial`"
SHM = "/dev/shm"


class RayStartError(UsageError):
    """Ray cannot start on this machine as it is. The message says why, and what to do."""


@dataclass(frozen=True)
class Obstacle:
    """A reason why Ray may not start.

    Attributes:
        name: What the obstacle is about.
        seen: Function that returns what is wrong, or None.
        remedy: What the user can do.
        stops: Whether Ray cannot start at all. Otherwise it starts, but not as requested.
    """

    name: str
    seen: Callable[[], str | None]
    remedy: str
    stops: bool = True


def no_folder() -> str | None:
    found = {place: unfit(place, INSIDE) for place in places("RAY_TMPDIR")}
    if not all(found.values()):
        return None
    return "no folder can hold Ray's sockets: " + "; ".join(f"{place}: {why}" for place, why in found.items())


def other_folder() -> str | None:
    first = places("RAY_TMPDIR")[0]
    why = unfit(first, INSIDE)
    return None if why is None else f"{first} cannot hold Ray's sockets ({why}); another folder is used"


def no_loopback() -> str | None:
    """Check whether this process can connect to itself. It also fails if no port is left."""
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), 2.0),
        ):
            return None
    except OSError as error:
        full = error.errno in (errno.EADDRINUSE, errno.EAGAIN)
        return None if full else f"{LOOPBACK} cannot be reached ({error.strerror or error})"


def no_ports() -> str | None:
    try:
        with socket.create_server((LOOPBACK, 0)):
            return None
    except OSError as error:
        return "no port is free" if error.errno in (errno.EADDRINUSE, errno.EAGAIN) else None


def few_files() -> str | None:
    """Check the hard limit of open files, because Ray raises the soft limit up to it."""
    most = limits.hard("NOFILE")
    return f"a process may open {most:.0f} files, Ray needs {FILES}" if most < FILES else None


def rather_few_files() -> str | None:
    most = limits.hard("NOFILE")
    return (
        f"a process may open {most:.0f} files; many actors need more" if FILES <= most < FEW_FILES else None
    )


def few_processes() -> str | None:
    left, needed = limits.threads_left(), THREADS + THREADS_PER_CORE * usable_cores()
    return (
        f"{left:.0f} more processes and threads are allowed, Ray takes about {needed}"
        if left < needed
        else None
    )


def little_space() -> str | None:
    most, needed = limits.soft("AS"), STORE_SHARE * (free_memory() or 0.0) + SPACE
    return (
        f"a process may have {most / 1e9:.1f} GB of addresses, Ray needs {needed / 1e9:.1f}"
        if most < needed
        else None
    )


def little_memory() -> str | None:
    free = free_memory()
    if free is None or free >= MEMORY:
        return None
    return f"{free / 1e6:.0f} MB of memory are free, Ray alone takes {MEMORY / 1e6:.0f}"


def no_proc() -> str | None:
    return (
        "/proc is not mounted" if sys.platform == "linux" and not Path("/proc/self/stat").exists() else None
    )


def no_working_folder() -> str | None:
    try:
        os.getcwd()
    except OSError as error:
        return f"the working folder cannot be used ({error.strerror or error})"
    return None


def no_shared_memory() -> str | None:
    """Check whether shared memory is missing or small. Ray then keeps objects in its folder."""
    if sys.platform != "linux":
        return None
    if not shared_memory_works():
        return f"{SHM} cannot be written: objects lie in Ray's folder, which is slower"
    free = shutil.disk_usage(SHM).free
    return (
        f"{SHM} has {free / 1e9:.1f} GB: larger objects lie in Ray's folder, which is slower"
        if free < SHARED
        else None
    )


def shared_memory_works() -> bool:
    return os.path.isdir(SHM) and os.access(SHM, os.W_OK | os.X_OK)


def another_ray() -> str | None:
    named = [name for name in ("RAY_ADDRESS",) if os.environ.get(name)]
    return (
        f"{named[0]} = {os.environ[named[0]]} is set; without --address it is not followed" if named else None
    )


OBSTACLES = (
    Obstacle("working folder", no_working_folder, "change to a folder that exists"),
    Obstacle("/proc", no_proc, "mount it: mount -t proc proc /proc"),
    Obstacle(
        "Ray's folder", no_folder, "set RAY_TMPDIR to a short path of a folder that is yours and has space"
    ),
    Obstacle("loopback", no_loopback, "switch it on (`ip link set lo up`), or give the container a network"),
    Obstacle("ports", no_ports, "end what holds them, or widen net.ipv4.ip_local_port_range"),
    Obstacle("open files", few_files, "raise the limit: `ulimit -n 4096`, docker run --ulimit nofile=4096"),
    Obstacle("processes", few_processes, "raise the limit: `ulimit -u`, docker run --pids-limit"),
    Obstacle("addresses", little_space, "lift the limit: `ulimit -v unlimited`"),
    Obstacle("memory", little_memory, "end other programs, or give the container more"),
    Obstacle("Ray's folder", other_folder, "set RAY_TMPDIR to another if that is not right", stops=False),
    Obstacle("open files", rather_few_files, "raise the limit: `ulimit -n 4096`", stops=False),
    Obstacle("shared memory", no_shared_memory, "docker run --shm-size=2g", stops=False),
    Obstacle("another Ray", another_ray, "--address auto joins it", stops=False),
)
"""All obstacles in the order in which they are checked. An earlier one may be the cause of a later one."""

SAID = {  # words in Ray's logs or errors → (what is wrong, remedy)
    r"too many open files|EMFILE": ("too few files may be opened", "raise the limit: `ulimit -n 4096`"),
    r"cannot allocate memory|bad_alloc|MemoryError|out of memory|ENOMEM": (
        "memory, or the limit of it, does not suffice",
        "end other programs, or lift `ulimit -v` and the container's limit",
    ),
    r"resource temporarily unavailable|pthread_create|can't start new thread|SeedGenException": (
        "too few processes and threads are allowed",
        "raise `ulimit -u` or docker run --pids-limit",
    ),
    r"no space left|disk quota": ("no space is left", "free some, or set RAY_TMPDIR to another folder"),
    r"address already in use|EADDRINUSE": ("a port is taken", "try again, or end what holds it"),
    r"cannot assign requested address|network is unreachable": (
        "this machine cannot reach itself",
        "switch loopback on (`ip link set lo up`)",
    ),
    r"AF_UNIX path length": ("the folder's path is too long for sockets", "set RAY_TMPDIR to a short one"),
    r"read-only file system|permission denied|operation not permitted": (
        "something is forbidden here",
        "look at the permissions of Ray's folder, and at the container's security profile",
    ),
}


def check_machine() -> None:
    """Check for obstacles.

    Raises:
        RayStartError: An obstacle prevents Ray from starting. The message names the first one.
    """
    for one in OBSTACLES:
        if one.stops and (what := one.seen()) is not None:
            raise RayStartError(f"Ray cannot start here: {what}; {one.remedy}, {SERIAL}")


def visible() -> Iterator[tuple[Obstacle, str]]:
    """Yield every obstacle that can be seen now, and what is wrong."""
    for one in OBSTACLES:
        if (what := one.seen()) is not None:
            yield one, what


def recognised(error: BaseException, logs: Path) -> str | None:
    """Return in one line why Ray did not start and what to do, or None if the cause is unknown.

    The cause is found by the words of the error and of the ends of Ray's logs.
    """
    first = first_line(error)
    for text in (str(error), *_ends(logs)):
        for words, (what, remedy) in SAID.items():
            if re.search(words, text, re.IGNORECASE):
                return f"Ray could not start: {what} ({first}); {remedy}, {SERIAL}"
    return None


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _ends(logs: Path) -> Iterator[str]:
    """Yield the last 4 KB of every log that holds errors."""
    for path in sorted(logs.glob("**/*.err")) + sorted(logs.glob("**/*.out")):
        try:
            yield path.read_bytes()[-4096:].decode(errors="replace")
        except OSError:
            continue
