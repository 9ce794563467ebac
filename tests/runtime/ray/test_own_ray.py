"""Who may enter an own Ray: this machine alone reaches it, with its token alone; and no other Ray is
joined instead.
"""

from __future__ import annotations

import http.client
import os
import socket
import stat
from pathlib import Path

import pytest
import ray

from raffed.runtime.ray import session as ray_backend_session
from raffed.runtime.ray.own_ray import OwnRay
from raffed.runtime.ray.session import RaySession
from tests.runtime.ray.intruders import KNOCK, answers, run
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


def test_a_socket_that_is_open_to_others_is_seen() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        (place,) = [place for place in listening(os.getpid()) if place.port == port]
    assert not place.loopback


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
    for pid in family(os.getpid()):
        try:
            assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
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


def test_a_ray_that_this_process_runs_already_is_used() -> None:
    with RaySession(None) as session:
        session.wait()
    assert ray.is_initialized()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a session that finds no Ray in its process would start or join; nothing is."""
    asked: list[str] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(OwnRay, "start", lambda self: asked.append("own"))
    monkeypatch.setattr(OwnRay, "end", lambda self: None)
    monkeypatch.setattr(ray_backend_session, "found", lambda address: address)
    monkeypatch.setattr(ray, "init", lambda address, **options: asked.append(address))
    return asked


@pytest.mark.parametrize(
    ("address", "job", "wanted"),
    [
        (None, False, "own"),
        ("local", False, "own"),
        ("auto", False, "auto"),
        ("head:6379", False, "head:6379"),
        (None, True, "auto"),
        ("local", True, "own"),
        ("head:6379", True, "head:6379"),
    ],
)
@pytest.mark.parametrize("named", ["http://127.0.0.1:8265", "127.0.0.1:6379", "auto", ""])
def test_which_ray(
    asked: list[str],
    address: str | None,
    job: bool,
    wanted: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", named)
    if job:
        monkeypatch.setenv(ray_backend_session.OF_A_JOB, "{}")
    with RaySession(address) as session:
        session.wait()
    assert asked == [wanted]
    assert ("Ray job" in caplog.text) == (job and address is None)


def test_every_server_of_ray_s_refuses_calls_without_the_token_and_with_a_wrong_one(
    node: dict[str, int],
) -> None:
    pytest.importorskip("grpc")
    assert {code for _, code in answers(node)} == {"UNAUTHENTICATED"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user")
def test_another_user_reaches_neither_the_sockets_nor_the_token() -> None:
    """Of Ray's, and raffed's own."""
    from raffed.runtime.ray.serving import Serving

    serving = Serving()
    own = serving.listen()
    assert own is not None
    raylet = ray.nodes()[0]["RayletSocketName"]
    (gcs,) = [
        pid for pid in family(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "gcs_server"
    ]
    paths = [own, raylet, f"{os.path.dirname(raylet)}/plasma_store", f"/proc/{gcs}/environ"]
    found = run(KNOCK, *paths, as_nobody=True)
    del serving  # its end removes the socket
    os.rmdir(os.path.dirname(own))
    assert found == [[path, "PermissionError"] for path in paths]
