"""Calls by socket: each answer to its call, errors as they were raised, and Ray's word on an actor that
is gone.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from raffed.core.messages import Private
from raffed.core.params import Params
from raffed.errors import BoundaryError, NumericsError
from raffed.runtime.ray_backend import socket_calls
from raffed.runtime.ray_backend.private_folder import NoFolderError
from raffed.runtime.ray_backend.socket_calls import RemoteError, Serving, Shared, SocketCalls

pytestmark = pytest.mark.usefixtures("ray_here")


class Secret(Private):
    w: Params


class StubbornError(Exception):
    """Cannot travel."""

    def __reduce__(self) -> Any:
        raise TypeError("stays here")


class ParticularError(Exception):
    """Is packed, and not unpacked: its arguments are not those of its __init__."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def no_folder(inside: int, first: str | None = None) -> Path:
    raise NoFolderError("no folder for a socket")


class Echo(Serving):
    def __init__(self, sockets: str | None = None, room: bool = True) -> None:
        if sockets is not None:
            os.environ["RAY_TMPDIR"] = sockets
        if not room:
            socket_calls.private_folder = no_folder

    def echo(self, value: Any) -> Any:
        return value

    def pid(self) -> int:
        return os.getpid()

    def secret(self) -> Secret:
        return Secret(Params({}))

    def diverge(self) -> None:
        raise NumericsError("the loss is nan")

    def object(self) -> None:
        raise StubbornError("no")

    def complain(self) -> None:
        raise ParticularError("a knot", "the loss")

    def nap(self) -> None:
        time.sleep(30)

    def leave(self) -> None:
        sys.exit(0)


ACTOR = ray.remote(num_cpus=0)(Echo)


def connected() -> Iterator[SocketCalls]:
    """Channels to two actors."""
    actors = [ACTOR.remote() for _ in range(2)]
    made = SocketCalls(dict(enumerate(actors)))
    yield made
    for actor in actors:
        ray.kill(actor, no_restart=True)
    made.settle()


@pytest.fixture(scope="module")
def channels(ray_here: None) -> Iterator[SocketCalls]:
    yield from connected()


@pytest.fixture
def mortal() -> Iterator[SocketCalls]:
    """Those of a test that ends an actor."""
    yield from connected()


def answer(channels: SocketCalls, actor: int, name: str, *arguments: Any) -> Any:
    ticket = channels.call(actor, name, arguments)
    came, outcome = channels.first([ticket])
    assert came == ticket
    return outcome()


def test_answers_belong_to_their_calls_in_whatever_order_they_are_waited_for(channels: SocketCalls) -> None:
    tickets = {channels.call(i % 2, "echo", (i,)): i for i in range(8)}
    for ticket, sent in reversed(tickets.items()):
        came, outcome = channels.first([ticket])
        assert (came, outcome()) == (ticket, sent)


def test_the_first_of_several_calls_to_be_answered_is_told(channels: SocketCalls) -> None:
    waiting = {channels.call(i, "echo", (i,)): i for i in (0, 1)}
    while waiting:
        ticket, outcome = channels.first(waiting)
        assert outcome() == waiting.pop(ticket)


def test_messages_larger_than_any_buffer_of_the_system_pass_each_other(channels: SocketCalls) -> None:
    """The actor sends 8 MB while 8 MB are sent to it: whoever waits for the other to read first waits for
    ever.
    """
    block = b"x" * 8_000_000
    tickets = [channels.call(0, "echo", (block,)) for _ in range(4)]
    assert all(channels.first([ticket])[1]() == block for ticket in tickets)


def test_large_arrays_and_shared_arguments_arrive_at_both_ends(channels: SocketCalls) -> None:
    w = Params({"w": torch.arange(100_000.0)}).clone()
    sent = Shared(w, small=False)
    tickets = [channels.call(i % 2, "echo", (sent,)) for i in range(4)]
    for ticket in tickets:
        back = channels.first([ticket])[1]()
        assert torch.equal(back["w"], w["w"])


def test_an_error_is_raised_here_as_it_was_there_with_its_traceback_as_the_cause(
    channels: SocketCalls,
) -> None:
    with pytest.raises(NumericsError, match="the loss is nan") as caught:
        answer(channels, 0, "diverge")
    assert isinstance(caught.value.__cause__, RemoteError)
    assert "in diverge" in str(caught.value.__cause__)
    assert answer(channels, 0, "echo", 1) == 1  # and the actor goes on


@pytest.mark.parametrize(
    ("name", "words"), [("object", "StubbornError: no"), ("complain", "ParticularError: a knot")]
)
def test_an_error_that_cannot_travel_is_told_in_words(name: str, words: str, channels: SocketCalls) -> None:
    with pytest.raises(RemoteError, match=words) as caught:
        answer(channels, 0, name)
    assert f"in {name}" in str(caught.value.__cause__)


def test_private_state_travels_by_socket_as_little_as_through_ray(channels: SocketCalls) -> None:
    with pytest.raises(BoundaryError, match="Secret is private"):
        answer(channels, 0, "secret")
    with pytest.raises(BoundaryError, match="Secret is private"):
        channels.call(0, "echo", (Secret(Params({})),))
    assert answer(channels, 0, "echo", 1) == 1


def test_of_an_actor_that_is_killed_ray_says_so_for_every_call_it_owed(mortal: SocketCalls) -> None:
    pid = answer(mortal, 0, "pid")
    os.kill(pid, signal.SIGKILL)
    tickets = [mortal.call(0, "echo", (i,)) for i in range(2)]
    for ticket in tickets:
        with pytest.raises(ray.exceptions.RayActorError):
            mortal.first([ticket])[1]()
    assert not mortal.reaches(0)
    assert answer(mortal, 1, "echo", 1) == 1  # the other one is none the wiser


def test_an_actor_that_dies_while_it_is_written_to_is_lost_and_nothing_else_goes_wrong(
    mortal: SocketCalls,
) -> None:
    """More is sent to it than a socket holds, so that the caller waits in the middle of a message."""
    pid = answer(mortal, 0, "pid")
    waiting = [mortal.call(0, "nap", ())]
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    waiting.append(mortal.call(0, "echo", (b"x" * 20_000_000,)))
    for ticket in waiting:
        with pytest.raises(ray.exceptions.RayActorError):
            mortal.first([ticket])[1]()


class Eager(queue.Queue[Any]):
    """An inbox whose reader is always faster: an end that is over is closed as soon as that is told.
    Waits 30 s, not for ever.
    """

    def __init__(self, channels: SocketCalls) -> None:
        super().__init__()
        self.channels = channels

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item[1] is None:
            self.channels._ends[item[0]].close()
        super().put(item, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get(block, timeout or 30)


def test_the_answers_of_the_others_are_read_though_an_end_is_closed_at_once(mortal: SocketCalls) -> None:
    pid = answer(mortal, 0, "pid")
    mortal._inbox = Eager(mortal)  # type: ignore[assignment]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        answer(mortal, 0, "echo", 1)
    assert answer(mortal, 1, "echo", 2) == 2


def test_an_actor_that_leaves_by_itself_counts_as_lost(mortal: SocketCalls) -> None:
    with pytest.raises(ray.exceptions.RayActorError):
        answer(mortal, 0, "leave")


def test_an_actor_that_is_dead_before_it_is_connected_to_is_left_to_ray() -> None:
    actor = ACTOR.remote()
    ray.kill(actor, no_restart=True)
    assert not SocketCalls({0: actor}).reaches(0)


def test_where_a_socket_finds_no_folder_calls_stay_with_ray() -> None:
    actor = ACTOR.remote(None, room=False)
    assert not SocketCalls({0: actor}).reaches(0)
    assert ray.get(actor.echo.remote(1)) == 1
    ray.kill(actor, no_restart=True)


def test_below_a_deep_folder_a_socket_lies_elsewhere(tmp_path: Path) -> None:
    """A socket's path has some 100 characters at most; a deep TMPDIR is longer."""
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    actor = ACTOR.remote(str(deep))
    channels = SocketCalls({0: actor})
    assert answer(channels, 0, "echo", 1) == 1
    assert not list(deep.iterdir())
    ray.kill(actor, no_restart=True)
    channels.settle()


def test_no_file_is_left_behind_once_an_actor_is_connected() -> None:
    with tempfile.TemporaryDirectory(prefix="c-") as short:
        actor = ACTOR.remote(short)
        channels = SocketCalls({0: actor})
        assert answer(channels, 0, "echo", 1) == 1
        assert not list(Path(short).iterdir())
        ray.kill(actor, no_restart=True)
        channels.settle()
