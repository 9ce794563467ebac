"""Find out whether Ray starts here, an actor answers, and who can reach it, for `raffed doctor --ray`."""

from __future__ import annotations

import contextlib
import http.client
import os
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import ray

from raffed.runtime.ray_backend.listening import ListeningSocket, listening
from raffed.runtime.ray_backend.nodes import different_nodes
from raffed.runtime.ray_backend.obstacles import LOOPBACK, RayStartError
from raffed.runtime.ray_backend.session import RaySession

REFUSED = (401, 403)  # HTTP status: no token, wrong token
ASK_SECONDS = 5.0


@ray.remote(num_cpus=0)
class _Echo:
    def answer(self) -> int:
        return os.getpid()


class Probed(NamedTuple):
    """What was found out.

    Attributes:
        started: Seconds that the start took.
        reach: Who can reach Ray, in words.
        open: Whether others than this user can reach it.
        nodes: How many nodes it has.
        different: Address of each node with another raffed, torch or NumPy → what differs.
    """

    started: str
    reach: str
    open: bool
    nodes: int
    different: Mapping[str, str]


def probe(address: str | None = None, timeout: float = 60.0) -> Probed:
    """Start or join a Ray as every command does, ask one actor, and give the Ray back.

    Raises:
        UsageError: There is no Ray.
    """
    began = time.monotonic()
    with RaySession(address) as session:
        session.wait()
        ready = time.monotonic() - began
        try:
            ray.get(_Echo.remote().answer.remote(), timeout=timeout)  # type: ignore[attr-defined]
        except (ray.exceptions.RayError, TimeoutError) as error:
            raise RayStartError(
                f"Ray started, but no actor answered: {str(error).splitlines()[0]}"
            ) from error
        started = f"yes, in {ready:.1f} s; an actor answered after {time.monotonic() - began:.1f} s"
        return Probed(started, *_reach(listening(os.getpid())), *different_nodes())


def _reach(places: list[ListeningSocket]) -> tuple[str, bool]:
    """Return who can reach the Ray of this process, in words, and whether that is more than this user."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    elsewhere = sorted({str(node["NodeManagerAddress"]) for node in nodes} - {LOOPBACK})
    wide = sorted({f"{place.address} port {place.port}" for place in places if not place.loopback})
    agents = [(str(node["NodeManagerAddress"]), int(node["DashboardAgentListenPort"])) for node in nodes]
    lets_in = any(_lets_in(*agent) for agent in agents if agent[1] > 0)
    token = (
        "without a token: everybody who reaches it runs code as its user"
        if lets_in
        else "with its token only"
    )
    if elsewhere or wide:
        where = ", ".join([*elsewhere, *wide])
        return f"from every machine that reaches {where}, {token}", True
    ports = len({place.port for place in places})
    return f"from this machine only ({LOOPBACK}, {ports} ports), {token}", lets_in


def _lets_in(host: str, port: int) -> bool:
    """Return whether a node's job server answers a request without a token."""
    with contextlib.suppress(OSError, http.client.HTTPException), _asked(host, port) as connection:
        connection.request("GET", "/api/job_agent/jobs/none/logs")
        return connection.getresponse().status not in REFUSED
    return False


@contextlib.contextmanager
def _asked(host: str, port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
    try:
        yield connection
    finally:
        connection.close()
