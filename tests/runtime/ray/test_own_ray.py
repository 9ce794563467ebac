"""Who may enter an own Ray: this machine alone reaches it, with its token alone; and no other Ray is
joined instead.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import stat
from pathlib import Path

import psutil
import pytest
import ray

from tests.runtime.ray.intruders import answers
from tests.runtime.ray.listening import family, listening

pytestmark = pytest.mark.usefixtures("ray_here")


@pytest.fixture
def node() -> dict[str, int]:
    """Ports of the one node, by name."""
    (found,) = ray.nodes()
    assert found["NodeManagerAddress"] == "127.0.0.1"
    names = (
        "NodeManagerPort",
        "ObjectManagerPort",
        "MetricsAgentPort",
        "DashboardAgentListenPort",
        "RuntimeEnvAgentPort",
    )
    ports = {name: int(found[name]) for name in names}
    ports["GCS"] = int(str(ray.get_runtime_context().gcs_address).rpartition(":")[2])
    (ports["this process"],) = {place.port for place in listening(os.getpid()) if place.pid == os.getpid()}
    return ports


def test_everything_that_listens_does_so_on_loopback_alone(node: dict[str, int]) -> None:
    places = listening(os.getpid())
    # What is looked at is Ray
    assert {port for port in node.values() if port > 0} <= {place.port for place in places}
    assert {place.address for place in places} <= {"127.0.0.1", "::1"}
    assert all(place.loopback for place in places)


@pytest.mark.parametrize("agent", ["DashboardAgentListenPort", "RuntimeEnvAgentPort"])
@pytest.mark.parametrize("token", [None, "0" * 64], ids=["no token", "a wrong token"])
def test_the_agents_refuse_who_has_not_the_token(node: dict[str, int], agent: str, token: str | None) -> None:
    if node[agent] < 0:  # its usual port belongs to another Ray on this machine, so there is no such agent
        assert agent == "DashboardAgentListenPort"
        return
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    paths = {
        "DashboardAgentListenPort": "/api/job_agent/jobs/",
        "RuntimeEnvAgentPort": "/get_or_create_runtime_env",
    }
    connection = http.client.HTTPConnection("127.0.0.1", node[agent], timeout=10)
    connection.request("POST", paths[agent], body=b'{"entrypoint": "true"}', headers=headers)
    assert connection.getresponse().status in (401, 403)
    connection.close()


def test_the_token_is_in_the_environment_of_ray_s_processes_and_nowhere_else(tmp_path: Path) -> None:
    @ray.remote(num_cpus=0)
    def environment() -> dict[str, str]:
        return dict(os.environ)

    inside = ray.get(environment.remote())
    token = inside["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    assert inside["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in os.environ
    for process in family(os.getpid()):
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
    closed = [
        one
        for one in sockets.parents
        if stat.S_IMODE(one.stat().st_mode) == 0o700 and one.stat().st_uid == os.getuid()
    ]
    assert [one for one in closed if one.name.startswith("raffed-")]


def test_every_server_of_ray_s_refuses_calls_without_the_token_and_with_a_wrong_one(
    node: dict[str, int],
) -> None:
    pytest.importorskip("grpc")
    assert {code for _, code in answers(node)} == {"UNAUTHENTICATED"}
