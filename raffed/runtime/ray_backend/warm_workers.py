"""Let the workers of an own Ray be forked from a process that has imported torch (warm_process.py)."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from raffed.errors import UsageError
from raffed.runtime.ray_backend import warm_worker
from raffed.runtime.ray_backend.ray_parameters import lean_ray
from raffed.runtime.ray_backend.warm_worker import THREADS

SWITCH = "RAFFED_WARM_WORKERS"
PACKAGES = Path(__file__).parents[3]
ENDING_SECONDS = 5.0
_START = (
    "import sys; sys.path.append(sys.argv[2]); from raffed.runtime.ray_backend import warm_process as one; "
    "sys.path.pop(); one.main(int(sys.argv[1]), sys.argv[2])"
)
log = logging.getLogger(__name__)


def are_forked() -> bool:
    """Return whether workers are forked: on Linux, unless RAFFED_WARM_WORKERS=off.

    Raises:
        UsageError: The variable has a value other than "on" and "off".
    """
    value = os.environ.get(SWITCH, "on")
    if value not in ("on", "off"):
        raise UsageError(f"{SWITCH} = {value!r}: it can be 'on' (the default) or 'off'")
    return value == "on" and sys.platform == "linux"


class WarmWorkers:
    """The process from which the workers of one Ray are forked.

    Raises:
        UsageError: RAFFED_WARM_WORKERS has a value that does not exist.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = are_forked()

    def begin(self, folder: Path) -> None:
        """Start the process, which imports torch meanwhile. It ends with its standard input.

        Args:
            folder: A private folder in which its socket and its log lie.
        """
        if not self._wanted:
            return
        self._place, self._log = folder / warm_worker.SOCKET, folder / "warm.log"
        try:
            with socket.socket(socket.AF_UNIX) as line, self._log.open("wb") as said:
                line.bind(str(self._place))
                line.listen(128)
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START, str(line.fileno()), str(PACKAGES)],
                    env={THREADS: "1", **os.environ},
                    pass_fds=[line.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    preexec_fn=lambda: None,  # it then counts as one of Ray's processes (endings.py)
                )
        except OSError as error:  # the path is too long for a socket, or there is no room for a process
            _warn(error.strerror or str(error))

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let a Ray that is started in the body have its workers from the process."""
        if self._process is None:
            with lean_ray(None):
                yield
            return
        told = {warm_worker.PLACE: str(self._place), warm_worker.PROGRAM: _program()}
        os.environ.update(told)
        try:
            with lean_ray(warm_worker.__file__):
                yield
        finally:
            for name in told:
                del os.environ[name]
        self._check()

    def wait(self, seconds: float) -> None:
        """Wait until the process has imported everything, at most this long."""
        if self._process is None:
            return
        with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
            line.settimeout(seconds)
            line.connect(str(self._place))
            line.recv(1)  # its greeting; it gives no fork to whoever asks for nothing
        self._check()

    def _check(self) -> None:
        """Warn once if the process has ended by itself, because it could not import what it must."""
        if self._process is not None and (self._process.poll() or 0) > 0:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            _warn(lines[-1] if lines else f"the process ended with code {self._process.returncode}")
            self._process = None

    def end(self) -> None:
        """End the process, and with it all forks that are left."""
        self._check()
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SECONDS)


def _warn(why: str) -> None:
    log.warning(
        "Ray's workers are not forked from a process that has imported torch: %s. Each imports it itself, "
        "which takes more time and memory and changes no result; %s=off avoids this message",
        why.rstrip("."),
        SWITCH,
    )


def _program() -> str:
    """Return the program of Ray's workers, without importing Ray."""
    found = importlib.util.find_spec("ray")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "_private" / "workers" / "default_worker.py")
