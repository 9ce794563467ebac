"""The commands `raffed up` and `raffed down`: a Ray on this machine that stands ready for runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from raffed.errors import UsageError
from raffed.results.command_line import VARIABLE

JOIN = "runs join it with --address warm; `raffed down` ends it"


def up() -> None:
    """Start a Ray that stands ready on this machine. Runs that join it with --address warm begin sooner.

    Its workers have torch in memory. It takes no part in other runs, and stays until `raffed down`.
    """
    from raffed.runtime.ray_backend.standing_ray import joined_ray, standing

    if standing() is not None:
        joined_ray()  # refuses one that this command could not use
        _say(f"a Ray stands ready already; {JOIN}")
        return
    if sys.platform == "win32":
        raise UsageError("raffed up: no Ray can stand ready on Windows; leave --address out")
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "raffed.runtime.ray_backend.stand"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            env={name: text for name, text in os.environ.items() if name != VARIABLE},
        )
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
        except KeyboardInterrupt:
            process.terminate()
            raise
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    if not ready:
        raise UsageError(lines[-1] if lines else f"raffed up: Ray ended with code {process.wait()}")
    for line in lines:
        _say(line)
    _say(f"a Ray stands ready (process {process.pid}); {JOIN}")


def down() -> None:
    """End the Ray that `raffed up` has started. Runs on it end and can be resumed."""
    from raffed.runtime.ray_backend.standing_ray import end_standing

    _say("the Ray has ended" if end_standing() else "no Ray stands ready on this machine")


def _say(text: str) -> None:
    print(f"raffed: {text}", file=sys.stderr, flush=True)


__all__ = ["down", "up"]
