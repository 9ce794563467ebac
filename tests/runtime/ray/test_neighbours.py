"""Another user of the machine and another network namespace try every port, socket and file of an own Ray.

These tests need root.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import psutil
import pytest
import ray

from raffed.runtime.ray.serving import Serving
from tests.runtime.ray.intruders import KNOCK, OUTSIDE, another_network, answers, run
from tests.runtime.ray.listening import family, listening
from tests.runtime.ray.test_own_ray import node  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_here"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user"),
]


@pytest.fixture
def network() -> Iterator[list[str]]:
    with another_network() as prefix:
        if not prefix:
            pytest.skip("network namespaces are not permitted here (apt-get install iproute2)")
        yield prefix


@pytest.fixture
def places() -> Iterator[list[str]]:
    """Sockets of Ray's and of raffed's, and files that hold the token."""
    serving = Serving()
    own = serving.listen()
    assert own is not None
    raylet = ray.nodes()[0]["RayletSocketName"]
    yield [own, raylet, f"{os.path.dirname(raylet)}/plasma_store", *environments()]
    del serving  # its end removes the socket
    os.rmdir(os.path.dirname(own))


def environments() -> list[str]:
    """Those of Ray's processes that have the token."""
    found = []
    for process in family(os.getpid())[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            if "RAY_AUTH_TOKEN" in process.environ():
                found.append(f"/proc/{process.pid}/environ")
    assert len(found) >= 2, "the GCS and the raylet"
    return found


def ports() -> list[int]:
    found = sorted({place.port for place in listening(os.getpid())})
    assert len(found) >= 5
    return found


def test_another_user_is_refused_by_every_server_that_is_asked_without_the_token(
    node: dict[str, int],  # noqa: F811
) -> None:
    assert {code for _, code in answers(node, as_nobody=True)} == {"UNAUTHENTICATED"}


def test_another_user_opens_no_socket_and_reads_no_environment(places: list[str]) -> None:
    assert {said for _, said in run(KNOCK, *places, as_nobody=True)} == {"PermissionError"}


def test_another_network_namespace_reaches_no_port(network: list[str]) -> None:
    """Neither at this machine's address nor at its own loopback. A server that is open to all is reached."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        door = f"{OUTSIDE}:{server.getsockname()[1]}"
        assert run(KNOCK, door, prefix=network) == [[door, "LET", "IN"]]
    doors = [f"{host}:{port}" for host in (OUTSIDE, "127.0.0.1") for port in ports()]
    assert {said for _, said in run(KNOCK, *doors, prefix=network)} == {"ConnectionRefusedError"}
