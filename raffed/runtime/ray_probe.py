"""Does Ray start here, and does an actor answer? For `raffed doctor --ray`."""

from __future__ import annotations

import logging
import os
import time

import ray


@ray.remote(num_cpus=0)
class _Echo:
    def answer(self) -> int:
        return os.getpid()


def probe(timeout: float = 60.0) -> str:
    """Start an own Ray, ask one actor, end both; says how long it took. Raises what Ray raises, a RuntimeError on silence."""
    began = time.monotonic()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    try:
        ready = time.monotonic() - began
        echo = _Echo.remote()  # type: ignore[attr-defined]
        ray.get(echo.answer.remote(), timeout=timeout)
        return f"yes, in {ready:.1f} s; an actor answered after {time.monotonic() - began:.1f} s"
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Ray started, but no actor answered: {error}") from error
    finally:
        ray.shutdown()
