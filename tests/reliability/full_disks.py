"""Full disks under runs on Ray and sweeps: of their folder, of Ray's folder, and of shared memory.

Each condition mounts small file systems, which needs root. Ray's folder is filled at a random moment, while
Ray starts or later. The work goes on with what it has, or ends in one line; with room again it comes to the
result of an undisturbed run or sweep.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.reliability.commands import POLL, Command
from tests.reliability.places import Outcome, Place, judged, last
from tests.reliability.strikes import LONGEST

IMPOSSIBLE = ("impossible here", "mounting is not permitted")
RAY_STARTS_BELOW = 25.0  # seconds


@contextlib.contextmanager
def file_system(place: Path, size: str) -> Iterator[bool]:
    """A file system in memory of this size at a folder, for the body; False if none can be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    mounted = subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", place], check=True)


def filled(folder: Path) -> Path:
    """Take all the room of a file system. Returns the file that takes it."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return ballast


def small_disk_of_ray(place: Place) -> Outcome:
    """A run on Ray, or a sweep, has a file system of a few hundred kilobytes, which then gets more room."""
    words, size = _work(place), place.dice.randrange(20, 700)
    with file_system(place.out, f"{size}k") as mounted:
        if not mounted:
            return IMPOSSIBLE
        command = place.begun(words)
        code = command.wait(LONGEST)
        how = f"{words[0]}, {size} kB"
        if code:
            subprocess.run(["mount", "-o", "remount,size=64m", place.out], check=True)
        return _outcome(place, command, words, how)


def full_ray_folder(place: Place) -> Outcome:
    """The disk of Ray's folder, and mostly that of all temporary files, becomes full at a random moment."""
    words = _work(place)
    short = Path(tempfile.mkdtemp(prefix="f", dir="/tmp"))  # sockets lie there, whose paths must be short
    names = place.dice.choice([("RAY_TMPDIR",), ("TMPDIR", "RAY_TMPDIR"), ("TMPDIR",)])
    try:
        with file_system(short, "80m") as mounted:
            if not mounted:
                return IMPOSSIBLE
            command = place.begun(words, environment=dict.fromkeys(names, str(short)))
            moment = _moment(place, command)
            ballast = filled(short)
            how = f"{words[0]}, {' and '.join(names)} full after {moment}"
            code = command.wait(LONGEST)
            ballast.unlink(missing_ok=True)
            return _outcome(place, command, words, f"{how}, exit code {code}")
    finally:
        shutil.rmtree(short, ignore_errors=True)


def full_shared_memory(place: Place) -> Outcome:
    """A run on Ray, or a sweep, has little shared memory, which is filled at a random moment."""
    words, size = _work(place), place.dice.choice([1, 20, 100, 8000])
    mount = f'mount -t tmpfs -o size={size}m none /dev/shm && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", mount, "sh", "true"], check=False).returncode:
        return IMPOSSIBLE
    command = place.begun(words, within=("unshare", "-m", "sh", "-c", mount, "sh"))
    moment = _moment(place, command)
    if size < 1000:
        filled(Path(f"/proc/{command.pid}/root/dev/shm"))
    code = command.wait(LONGEST)
    return _outcome(place, command, words, f"{words[0]}, {size} MB full after {moment}, exit code {code}")


def _work(place: Place) -> list[str]:
    """A run on Ray, or a sweep."""
    return place.dice.choice([place.words("ray"), place.sweep()])


def _moment(place: Place, command: Command) -> str:
    """Wait for a random moment: while Ray starts, or until some rounds were shown. Returns which it was."""
    until = time.monotonic() + place.dice.uniform(0.0, RAY_STARTS_BELOW)
    lines = place.dice.choice([0, 0, 1, 2, 4])
    while command.poll() is None and (command.lines() < lines if lines else time.monotonic() < until):
        time.sleep(POLL / 4)
    return f"{command.lines()} lines, {time.monotonic() - command.began:.1f} s"


def _outcome(place: Place, command: Command, words: list[str], how: str) -> Outcome:
    """What came of a command that has ended; there is room again."""
    err, code = command.errors.read_text(), command.poll() or 0
    if code == 0:
        return ("done" if place.is_expected(words) else "unequal hashes"), how
    how = f"{how}: {last(err)}"
    if left := command.left(set()):
        return f"left behind: {', '.join(one.name for one in left)}", how
    why = judged(code, command.errors.read_text() + command.log.read_text())
    return why or place.ends_equal(words) or "equal", how
