"""Parameters of a Ray's processes that `ray.init` does not take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray._private.parameter import RayParams

CALLED = "update_if_absent"  # the method with which Ray fills in the parameters that nobody gave


@contextlib.contextmanager
def lean_ray(worker_path: str | None) -> Iterator[None]:
    """Start a Ray in the body without the two processes that raffed never uses, each of 45 MB.

    They are the one that reads workers' logs, which are not shown, and the one that asks a cloud for nodes.

    Args:
        worker_path: The program that Ray starts in place of its own for every worker; None: its own.
    """
    from ray._private.parameter import RayParams

    absent: Callable[..., None] | None = getattr(RayParams, CALLED, None)
    if absent is None:  # another version of Ray, which starts as it likes
        yield
        return

    def changed(self: RayParams, **values: str | bool | None) -> None:
        self.no_monitor = True
        if "include_log_monitor" in values:
            values["include_log_monitor"] = False
        if "worker_path" in values and worker_path is not None:
            values["worker_path"] = worker_path
        absent(self, **values)

    setattr(RayParams, CALLED, changed)
    try:
        yield
    finally:
        setattr(RayParams, CALLED, absent)


__all__ = ["lean_ray"]
