"""The process that holds the Ray of `raffed up`, as `python -m raffed.runtime.ray_backend.stand`.

It starts an own Ray, prints "ready" when its workers have torch in memory, and ends it after SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from raffed.errors import UsageError

POLL_SECONDS = 1.0
WARM_SECONDS = 120.0  # in which the workers must have torch in memory


def stand(ended: threading.Event) -> str | None:
    """Hold a Ray until the event is set. Returns which of its processes died before, or None."""
    import ray

    from raffed.runtime.ray_backend import endings
    from raffed.runtime.ray_backend.own_ray import OwnRay
    from raffed.runtime.ray_backend.standing_ray import forget, note

    own = OwnRay()
    own.start()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())  # ray.init may have replaced it
    try:
        own.wait_until_warm(WARM_SECONDS)
        note(own.folder, str(ray.get_runtime_context().gcs_address), own.token)
        print("ready", flush=True)
        while not ended.wait(POLL_SECONDS) and endings.lost() is None:
            pass
        return endings.lost()
    finally:
        forget(own.folder)
        own.end()


def main() -> int:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        lost = stand(ended)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if lost is None else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of a Ray that was lost may wait for ever
