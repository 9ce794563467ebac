"""What each folder of the fast suite costs in CPU seconds, beside what CONTRIBUTING.md allows it.

    python -m tests.budget              every folder, one after the other, with the sum at the end
    python -m tests.budget cli models   these folders

Other work on the machine changes CPU seconds (user and system) less than wall time. The processes that a test
starts are counted too. Nobody waits for Ray's workers, so theirs are read from /proc while they live. Exits
with 1 if a folder fails or costs more than it is allowed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\w+) \| *(\d+|\?) \| *(\d+) \|$", re.MULTILINE)
TICKS = os.sysconf("SC_CLK_TCK")
EVERY = 0.2  # seconds between two readings of /proc


def allowed() -> dict[str, int]:
    """What CONTRIBUTING.md allows each folder, in CPU seconds."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {name: int(limit) for name, _, limit in ROW.findall(text)}


def folders() -> list[str]:
    """The folders of tests that `make test` runs. `make test-browser` runs the others."""
    found = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    return sorted(found - {"browser"})


class Workers:
    """The CPU seconds of Ray's workers below this process, read until `done`."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def done(self) -> float:
        self._stop.set()
        self._thread.join()
        return sum(self._last.values())

    def _read(self) -> None:
        while not self._stop.wait(EVERY):
            found = processes()
            for pid, (parent, _, began, seconds) in found.items():
                if found.get(parent, (0, ""))[1] == "raylet" and self._is_below(pid, found):
                    self._last[pid, began] = seconds

    @staticmethod
    def _is_below(pid: int, found: dict[int, tuple[int, str, str, float]]) -> bool:
        while pid in found and pid != os.getpid():
            pid = found[pid][0]
        return pid == os.getpid()


def processes() -> dict[int, tuple[int, str, str, float]]:
    """Parent, name, start and CPU seconds of every process, with the children that it waited for."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        rest = text[text.rindex(")") + 2 :].split()
        seconds = sum(map(int, rest[11:15])) / TICKS
        found[int(path.parent.name)] = (int(rest[1]), name, rest[19], seconds)
    return found


def cost(folder: str) -> tuple[int, float]:
    """pytest's exit code for a folder, and its CPU seconds."""
    workers = Workers()
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-p", "no:xdist", "-q", f"tests/{folder}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=sys.stderr)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime + workers.done()


def main(names: list[str]) -> int:
    limits, total, good = allowed(), 0.0, True
    print("| folder | CPU s | allowed |\n|---|---|---|", flush=True)
    for name in names or folders():
        code, seconds = cost(name)
        total += seconds
        limit = limits.get(name, 0)
        good = good and code == 0 and seconds <= limit
        note = "" if code == 0 else f"  pytest ended with {code}"
        note += "" if seconds <= limit else "  more than allowed"
        print(f"| {name} | {seconds:.0f} | {limit} |{note}", flush=True)
    print(f"sum: {total:.0f} of {sum(limits.get(name, 0) for name in names or folders())} CPU seconds")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
