"""Ray beside a run: what keeps it from starting is the user's to mend and is told at once; nothing waits
for it for ever.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest
import ray

from raffed.errors import UsageError
from raffed.runtime.ray import session
from raffed.runtime.ray.own_ray import OwnRay
from raffed.runtime.ray.session import RaySession, check_answers


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "a..b:{}"])
def test_an_address_where_nothing_listens_is_refused_before_ray_tries(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(UsageError, match="nothing answers there"):
        check_answers(form.format(free))


@pytest.mark.parametrize(
    ("said", "refused"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "not Ray"), (bytes((0, 0, 6, 4, 0)), ""), (b"", "says nothing")],
    ids=["a dashboard", "HTTP/2", "nothing"],
)
def test_what_does_not_speak_ray_s_protocol_is_refused_before_ray_tries(said: bytes, refused: str) -> None:
    """Ray would try for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        refusal = pytest.raises(UsageError, match=f"{refused}; .*HOST:6379")
        with refusal if refused else contextlib.nullcontext():
            check_answers(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(10)


Replace = Callable[[Callable[[str], object]], None]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """replaced(start) makes every start of a Ray start("own"), or start(ADDRESS) where one is joined."""

    def use(start: Callable[[str], object]) -> None:
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda address, **options: start(address))
        monkeypatch.setattr(ray, "shutdown", lambda: None)
        monkeypatch.setattr(OwnRay, "start", lambda self: start("own"))
        monkeypatch.setattr(OwnRay, "end", lambda self: None)
        monkeypatch.setattr(session, "found", lambda address: address)

    return use


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("head:6379", r"has not taken this process.*RAY_AUTH_TOKEN_PATH"),
        (None, r"has not started.*doctor --ray"),
    ],
    ids=["a cluster", "an own Ray"],
)
def test_a_ray_that_does_not_come_up_in_time_is_an_error(
    address: str | None, told: str, replaced: Replace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that asks for another token, to which Ray would go on trying for minutes; an own Ray one of
    whose processes was killed at the beginning, for which `ray.init` waits for ever.
    """
    let_go = threading.Event()
    replaced(lambda address: let_go.wait(60))
    for name, seconds in (("JOIN_SECONDS", 0.1), ("START_SECONDS", 0.1), ("POLL_SECONDS", 0.05)):
        monkeypatch.setattr(session, name, seconds)
    with RaySession(address) as began, pytest.raises(UsageError, match=told):
        began.wait()
    let_go.set()
    began._thread.join(30)


@pytest.mark.parametrize(
    ("address", "job", "wanted"),
    [(None, False, "own"), (None, True, "auto"), ("local", True, "own"), ("head:6379", False, "head:6379")],
)
def test_which_ray_is_started_or_joined_whatever_ray_address_says(
    address: str | None, job: bool, wanted: str, replaced: Replace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    replaced(asked.append)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    if job:
        monkeypatch.setenv(session.OF_A_JOB, "{}")
    with RaySession(address) as began:
        began.wait()
    assert asked == [wanted]


def test_whoever_has_started_ray_ends_it_in_the_thread_that_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel ends Ray's processes when the thread that forked them ends. A second session uses the first
    one's Ray, and one that comes later starts its own.
    """
    calls: list[tuple[str, int]] = []
    for name in ("start", "end"):
        note = lambda self, name=name: calls.append((name, threading.get_ident()))  # noqa: E731
        monkeypatch.setattr(OwnRay, name, note)
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(calls) and calls[-1][0] == "start")
    for rays in (1, 2):
        with RaySession(None) as first:
            first.wait()
            with RaySession(None) as second:
                second.wait()
            assert len(calls) == 2 * rays - 1
        (_, started), (name, ended) = calls[-2:]
        assert name == "end"
        assert started == ended != threading.get_ident()
