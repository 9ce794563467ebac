"""Ray beside a run: what keeps it from starting is the user's to mend and is told at once; nothing waits
for it for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray

from raffed.errors import UsageError
from raffed.runtime.ray import own_ray
from raffed.runtime.ray import session as ray_address
from raffed.runtime.ray import session as ray_backend_session
from raffed.runtime.ray.own_ray import OwnRay
from raffed.runtime.ray.session import RaySession, check_answers


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that takes connections and never says anything, for which nobody waits for long."""
    monkeypatch.setattr(ray_address, "SPEAK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed(silent: str) -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    return f"127.0.0.1:{free}"


def test_an_address_where_nothing_listens_is_refused_before_ray_tries(closed: str, silent: str) -> None:
    ip6 = f"[::1]:{closed.rpartition(':')[2]}"
    for address in (closed, f"ray://{closed}", ip6, "a..b:6379"):
        with pytest.raises(UsageError, match="nothing answers there"):
            check_answers(address)
    with pytest.raises(UsageError, match="takes connections and says nothing"):
        check_answers(silent)
    for other in ("nonsense", "127.0.0.1:-1", "127.0.0.1:", ":6379", "warm", "ray://", "127.0.0.1:6379/x"):
        with pytest.raises(UsageError, match="must be auto, local, HOST:PORT"):
            check_answers(other)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", True),
        (b"SSH-2.0-OpenSSH_9.2\r\n", True),
        (bytes((0, 0, 6, 4, 0)), False),
        (b"", True),
    ],
    ids=["a dashboard", "a login", "HTTP/2", "nothing"],
)
def test_what_does_not_speak_ray_s_protocol_is_refused_before_ray_tries(said: bytes, refused: bool) -> None:
    """Ray would try for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(UsageError, match=r"(not Ray|says nothing); .*HOST:6379")
            if refused
            else contextlib.nullcontext()
        ):
            check_answers(address)
        thread.join(10)


def test_what_ray_says_of_a_cluster_is_the_user_s_to_mend(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    def init(**kwargs: object) -> None:
        raise ConnectionError("no such cluster")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_backend_session, "found", lambda address: address)
    with (
        RaySession(silent) as session,
        pytest.raises(UsageError, match=f"--address {silent}: no such cluster; .*HOST:6379"),
    ):
        session.wait()


def test_a_session_ends_though_its_cluster_never_answers(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def init(**kwargs: object) -> None:
        asked.set()
        let_go.wait(60)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_backend_session, "found", lambda address: address)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray_backend_session, "JOIN_SECONDS", 0.5)

    def interrupted() -> None:
        with RaySession(silent):
            assert asked.wait(30)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    let_go.set()
    # It still ends its connection, before another test has a hand in `ray`
    for thread in threading.enumerate():
        if thread.name == "ray-session":
            thread.join(30)


def test_a_cluster_that_does_not_take_this_process_in_time_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that asks for another token, to which Ray would go on trying for minutes."""
    let_go = threading.Event()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: let_go.wait(60))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray_backend_session, "found", lambda address: address)
    monkeypatch.setattr(ray_backend_session, "JOIN_SECONDS", 0.1)
    monkeypatch.setattr(ray_backend_session, "POLL_SECONDS", 0.05)
    with (
        RaySession("head:6379") as session,
        pytest.raises(UsageError, match=r"has not taken this process.*RAY_AUTH_TOKEN_PATH"),
    ):
        session.wait()
    let_go.set()
    for thread in threading.enumerate():
        if thread.name == "ray-session":
            thread.join(30)


def test_ray_s_own_error_is_one_line_with_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        raise RuntimeError("too few of something\nand a second line")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(own_ray, "_read_again", lambda: None)
    # A start that fails leaves no Ray in `up`, where that of another test may stand
    monkeypatch.setattr(OwnRay, "up", OwnRay.up)
    with pytest.raises(UsageError, match=r"^Ray could not start: too few of something [^\n]*doctor --ray"):
        OwnRay().start()


def test_whoever_has_started_ray_ends_it_in_the_thread_that_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel ends Ray's processes when the thread that forked them ends. A second session uses the first
    one's Ray, and one that comes later starts its own.
    """
    calls: list[tuple[str, int]] = []

    def note(name: str) -> None:
        calls.append((name, threading.get_ident()))

    monkeypatch.setattr(OwnRay, "start", lambda self: note("start"))
    monkeypatch.setattr(OwnRay, "end", lambda self: note("end"))
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(calls) and calls[-1][0] == "start")
    for rays in (1, 2):
        with RaySession(None) as session:
            session.wait()
            with RaySession(None) as second:
                second.wait()
            assert len(calls) == 2 * rays - 1
        (_, started), (name, ended) = calls[-2:]
        assert name == "end"
        assert started == ended != threading.get_ident()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_signals_are_handled_as_before_once_ray_has_begun_and_once_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray's library sets handlers without Python's knowledge. Here it ignores the signal."""
    write, heard = ctypes.pythonapi.PyOS_setsig, list[str]()
    write.restype, write.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]

    def send(wanted: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        until = time.monotonic() + 10
        while len(heard) < wanted and time.monotonic() < until:
            time.sleep(0.01)
        assert heard == ["own"] * wanted

    monkeypatch.setattr(OwnRay, "start", lambda self: write(signal.SIGTERM, int(signal.SIG_IGN)))
    monkeypatch.setattr(OwnRay, "end", lambda self: write(signal.SIGTERM, int(signal.SIG_IGN)))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append("own"))
    try:
        with RaySession(None) as session:
            session.wait()
            send(1)
        send(2)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_own_ray_that_never_starts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when one of its processes is killed at the beginning: `ray.init` then waits for ever."""
    let_go = threading.Event()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(OwnRay, "start", lambda self: let_go.wait(60))
    monkeypatch.setattr(OwnRay, "end", lambda self: None)
    monkeypatch.setattr(ray_backend_session, "START_SECONDS", 0.1)
    monkeypatch.setattr(ray_backend_session, "POLL_SECONDS", 0.05)
    with RaySession(None) as session, pytest.raises(UsageError, match=r"has not started.*doctor --ray"):
        session.wait()
    let_go.set()
    session._thread.join(30)


@pytest.mark.skipif(not Path("/proc/thread-self/children").exists(), reason="Linux")
def test_processes_of_ray_s_lead_sessions_and_their_death_is_noticed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to the group of the command does not reach another session. The Ray of other tests is a child
    of another thread.
    """
    program = tmp_path / "gcs_server"
    shutil.copy(shutil.which("sleep") or "", program)

    def started() -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], dict[int, str]]:
        own_ray._starting.here = True
        head = subprocess.Popen([program, "300"], preexec_fn=lambda: None)
        own_ray._starting.here = False
        return head, subprocess.Popen(["sleep", "300"], preexec_fn=lambda: None), own_ray._vital()

    with ThreadPoolExecutor(1) as thread:
        head, other, vital = thread.submit(started).result()
        here = OwnRay()
        here.vital = vital
        monkeypatch.setattr(OwnRay, "up", here)
        try:
            assert os.getsid(head.pid) == head.pid != os.getsid(0) == os.getsid(other.pid)
            assert vital == {head.pid: "gcs_server"}
            assert own_ray.lost() is None
        finally:
            head.kill()
            other.kill()
    other.wait()
    assert os.waitid(os.P_PID, head.pid, os.WEXITED | os.WNOWAIT) is not None
    said = f"Ray's head process (gcs_server), process {head.pid},"
    assert own_ray.lost() == said
    head.wait()
    assert own_ray.lost() == said  # also where Ray's library has asked for its exit code
