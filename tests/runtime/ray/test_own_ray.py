"""Who may enter an own Ray: this machine alone reaches it, with its token alone."""

from __future__ import annotations

import contextlib
import http.client
import os
import stat
from pathlib import Path

import psutil
import pytest
import ray

from tests.runtime.ray.intruders import answers, family, listening

pytestmark = pytest.mark.usefixtures("ray_here")
AGENTS = {
    "DashboardAgentListenPort": "/api/job_agent/jobs/",
    "RuntimeEnvAgentPort": "/get_or_create_runtime_env",
}


@pytest.fixture
def node() -> dict[str, int]:
    """Ports of the one node, by name."""
    (found,) = ray.nodes()
    assert found["NodeManagerAddress"] == "127.0.0.1"
    names = ("NodeManagerPort", "ObjectManagerPort", "MetricsAgentPort", *AGENTS)
    ports = {name: int(found[name]) for name in names}
    ports["GCS"] = int(str(ray.get_runtime_context().gcs_address).rpartition(":")[2])
    (ports["this process"],) = {port for pid, _, port in listening() if pid == os.getpid()}
    return ports


def test_everything_that_listens_does_so_on_loopback_alone(node: dict[str, int]) -> None:
    places = listening()
    # What is looked at is Ray
    assert {port for port in node.values() if port > 0} <= {port for _, _, port in places}
    assert {address for _, address, _ in places} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agents_refuse_who_has_not_the_token(node: dict[str, int], agent: str) -> None:
    if node[agent] < 0:  # its usual port belongs to another Ray on this machine, so there is no such agent
        assert agent == "DashboardAgentListenPort"
        return
    for headers in ({}, {"Authorization": f"Bearer {'0' * 64}"}):
        connection = http.client.HTTPConnection("127.0.0.1", node[agent], timeout=10)
        connection.request("POST", AGENTS[agent], body=b'{"entrypoint": "true"}', headers=headers)
        assert connection.getresponse().status in (401, 403)
        connection.close()


def test_every_server_of_ray_s_refuses_calls_without_the_token_and_with_a_wrong_one(
    node: dict[str, int],
) -> None:
    pytest.importorskip("grpc")
    assert {code for _, code in answers(node)} == {"UNAUTHENTICATED"}


def test_the_token_is_in_the_environment_of_ray_s_processes_and_nowhere_else() -> None:
    @ray.remote(num_cpus=0)
    def environment() -> dict[str, str]:
        return dict(os.environ)

    inside = ray.get(environment.remote())
    token = inside["RAY_AUTH_TOKEN"]
    assert (len(token), inside["RAY_AUTH_MODE"]) == (64, "token")
    assert "RAY_AUTH_TOKEN" not in os.environ
    for process in family():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            assert token not in " ".join(process.cmdline())
    session = Path(ray.nodes()[0]["RayletSocketName"]).parents[1]
    files = [path for path in session.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert not [path for path in files if token.encode() in path.read_bytes()]
    saved = Path.home() / ".ray" / "auth_token"
    assert not saved.exists() or token not in saved.read_text()


def test_the_folder_of_the_session_is_the_user_s_alone() -> None:
    sockets = Path(ray.nodes()[0]["RayletSocketName"]).parent
    (own,) = [one for one in sockets.parents if one.name.startswith("raffed-")]
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert own.stat().st_uid == os.getuid()
