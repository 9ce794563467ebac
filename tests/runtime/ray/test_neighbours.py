"""Another user of the machine and another network namespace try every port, socket and file of an own Ray.

These tests need root.
"""

from __future__ import annotations

import contextlib
import os
import socket

import psutil
import pytest
import ray

from raffed.runtime.ray.serving import Serving
from tests.runtime.ray.intruders import KNOCK, OUTSIDE, another_network, answers, family, listening, run
from tests.runtime.ray.test_own_ray import node  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_here"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user"),
]


def test_another_user_is_refused_by_every_server_that_is_asked_without_the_token(
    node: dict[str, int],  # noqa: F811
) -> None:
    assert {code for _, code in answers(node, as_nobody=True)} == {"UNAUTHENTICATED"}


def test_another_user_opens_no_socket_and_reads_no_environment() -> None:
    """Sockets of Ray's and of raffed's, and the environments of the processes that have the token."""
    environments = []
    for process in family()[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            if "RAY_AUTH_TOKEN" in process.environ():
                environments.append(f"/proc/{process.pid}/environ")
    assert len(environments) >= 2, "the GCS and the raylet"
    serving = Serving()
    own, raylet = serving.listen(), ray.nodes()[0]["RayletSocketName"]
    assert own is not None
    places = [own, raylet, f"{os.path.dirname(raylet)}/plasma_store", *environments]
    assert {said for _, said in run(KNOCK, *places, as_nobody=True)} == {"PermissionError"}
    del serving  # its end removes the socket
    os.rmdir(os.path.dirname(own))


def test_another_network_namespace_reaches_no_port() -> None:
    """Neither at this machine's address nor at its own loopback. A server that is open to all is reached."""
    ports = {port for _, _, port in listening()}
    assert len(ports) >= 5
    with another_network() as network:
        if not network:
            pytest.skip("network namespaces are not permitted here (apt-get install iproute2)")
        with socket.create_server(("0.0.0.0", 0)) as server:
            door = f"{OUTSIDE}:{server.getsockname()[1]}"
            assert run(KNOCK, door, prefix=network) == [[door, "LET", "IN"]]
        doors = [f"{host}:{port}" for host in (OUTSIDE, "127.0.0.1") for port in ports]
        assert {said for _, said in run(KNOCK, *doors, prefix=network)} == {"ConnectionRefusedError"}
