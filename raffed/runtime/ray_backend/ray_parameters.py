"""What `ray.init` does not let one choose about the processes of a Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

PARAMETERS = "update_if_absent"  # the method with which Ray fills in the parameters that nobody gave
API_SERVER = "start_api_server"  # the method that starts the dashboard's process


@contextlib.contextmanager
def lean_ray(worker_path: str | None) -> Iterator[None]:
    """Start a Ray in the body without three processes that raffed never uses.

    They are the one that reads workers' logs, which are not shown, the one that asks a cloud for nodes, and
    the one that serves the dashboard. Ray starts the last one also where no dashboard is asked for, only to
    report usage, which raffed switches off. They take 45, 45 and 75 MB, and each imports Ray at the start. A
    version of Ray that starts them in another way starts them still.

    Args:
        worker_path: The program that Ray starts in place of its own for every worker; None: its own.
    """
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    fill_in = getattr(RayParams, PARAMETERS, None)

    def changed(self: RayParams, **values: str | bool | None) -> None:
        self.no_monitor = True
        if "include_log_monitor" in values:
            values["include_log_monitor"] = False
        if "worker_path" in values and worker_path is not None:
            values["worker_path"] = worker_path
        assert fill_in is not None
        fill_in(self, **values)

    def no_server(self: Node, **options: bool | None) -> None:
        pass  # the node's address of a dashboard stays None, as it is from the start

    with _replaced(RayParams, PARAMETERS, changed), _replaced(Node, API_SERVER, no_server):
        yield


@contextlib.contextmanager
def _replaced(owner: type, name: str, method: Any) -> Iterator[None]:
    """Replace a method of a class in the body, if the class has it."""
    own = getattr(owner, name, None)
    if own is None:
        yield
        return
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, own)


__all__ = ["lean_ray"]
