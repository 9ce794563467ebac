"""The laws of every transport: calls to client actors by socket and through Ray have the same answers, errors
and ends. Expected values are those of the same call in this process, or of the serial run. What is large lies
in memory that both sides map, and is given back.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch

from raffed.core.messages import Broadcast
from raffed.core.params import Params
from raffed.errors import BoundaryError, NumericsError
from raffed.runtime.ray import serving
from raffed.runtime.ray.serving import ASIDE, RemoteError, packed
from raffed.runtime.ray.transport import Call, RayCalls, SocketCalls, Transport, opened
from tests.runtime.ray.echo_actor import ACTOR, a_secret

with_ray = pytest.mark.usefixtures("ray_here")


def connected(kind: str) -> Iterator[Transport]:
    """A transport of a kind to two actors."""
    actors = {number: ACTOR.remote() for number in range(2)}
    through_ray = RayCalls(actors)
    made = through_ray if kind == "ray" else opened(through_ray, near=range(2), far=(), size=0)
    yield made
    for actor in actors.values():
        ray.kill(actor, no_restart=True)
    made.close()


@pytest.fixture(scope="module", params=[pytest.param("ray", marks=pytest.mark.more), "socket"])
def transport(request: pytest.FixtureRequest, ray_here: None) -> Iterator[Transport]:
    yield from connected(request.param)


@pytest.fixture(params=[pytest.param("ray", marks=pytest.mark.slow), "socket"])
def mortal(request: pytest.FixtureRequest, ray_here: None) -> Iterator[Transport]:
    """The transport of a test that ends an actor."""
    yield from connected(request.param)


def answer(transport: Transport, actor: int, name: str, *arguments: Any) -> Any:
    call: Call[Any] = Call(name, arguments)
    made = transport.call(actor, call)
    came, outcome = transport.first([made])
    assert came is made
    return outcome()


def test_messages_larger_than_any_buffer_of_the_system_pass_each_other(transport: Transport) -> None:
    """The actor sends 8 MB while 8 MB are sent to it. If one waited for the other to read first, both would
    wait for ever.
    """
    block = b"x" * 8_000_000
    calls = [transport.call(0, Call[bytes]("echo", (block,))) for _ in range(4)]
    assert all(transport.first([call])[1]() == block for call in calls)


def test_an_error_is_raised_here_as_it_was_there_with_its_traceback_as_the_cause(
    transport: Transport,
) -> None:
    with pytest.raises(NumericsError, match=r"^the loss is nan$") as caught:
        answer(transport, 0, "diverge")
    assert type(caught.value) is NumericsError
    assert isinstance(caught.value.__cause__, RemoteError)
    assert "in diverge" in str(caught.value.__cause__)
    assert answer(transport, 0, "echo", 1) == 1  # the actor goes on


def test_private_state_is_not_sent(transport: Transport) -> None:
    with pytest.raises((BoundaryError, TypeError), match="Secret is private"):
        answer(transport, 0, "secret")
    with pytest.raises((BoundaryError, TypeError), match="Secret is private"):
        transport.call(0, Call[Any]("echo", (a_secret(),)))
    assert answer(transport, 0, "echo", 1) == 1


@pytest.mark.parametrize("sent", [b"x", b"x" * 20_000_000], ids=["idle", "while it is written to"])
def test_every_call_that_a_killed_actor_owes_raises_and_the_other_actor_goes_on(
    mortal: Transport, sent: bytes
) -> None:
    """More than a socket holds is sent to one, so that the caller waits in the middle of a message."""
    pid = answer(mortal, 0, "pid")
    waiting = [mortal.call(0, Call[Any]("nap"))]
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    waiting.append(mortal.call(0, Call[Any]("echo", (sent,))))
    for call in waiting:
        with pytest.raises(ray.exceptions.RayActorError):
            mortal.first([call])[1]()
    assert answer(mortal, 1, "echo", 1) == 1


def test_a_silent_actor_keeps_nobody_from_the_answers_of_the_others(mortal: Transport) -> None:
    """It is stopped and not killed, so nothing reports its end. Its answer comes when it goes on."""
    pid = answer(mortal, 0, "pid")
    os.kill(pid, signal.SIGSTOP)
    silent, heard = mortal.call(0, Call[int]("echo", (1,))), mortal.call(1, Call[int]("echo", (2,)))
    came, outcome = mortal.first([silent, heard])
    assert came is heard
    assert outcome() == 2
    os.kill(pid, signal.SIGCONT)
    assert mortal.first([silent])[1]() == 1


@with_ray
def test_actors_of_this_machine_are_called_by_socket_and_others_through_ray(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also one to which no socket can be opened."""
    caplog.set_level(logging.INFO, "raffed")
    actors = {0: ACTOR.remote(), 1: ACTOR.remote(), 2: ACTOR.remote(room=False)}
    made = opened(RayCalls(actors), near=[0, 2], far=[1], size=0)
    assert isinstance(made, SocketCalls)
    assert [made.reaches(actor) for actor in actors] == [True, False, False]
    assert [answer(made, actor, "echo", 7) for actor in actors] == [7] * 3
    assert "1 client actors are called by socket, 2 through Ray" in caplog.text
    assert "no socket could be opened to client actors 2: they are called through Ray" in caplog.text
    for actor in actors.values():
        ray.kill(actor, no_restart=True)
    made.close()


@with_ray
@pytest.mark.parametrize(("size", "kind"), [(1_000_000, RayCalls), (1_000, SocketCalls)])
def test_without_shared_memory_only_small_broadcasts_go_by_socket(
    size: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.runtime.ray.transport.SHARES", False)
    made = opened(RayCalls({}), near=(), far=(), size=size)
    assert type(made) is kind
    made.close()


needs_memory = pytest.mark.skipif(not serving.SHARES, reason="no memory without a name on this system")
LARGE = ASIDE // 8 + 3  # int64 numbers


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@needs_memory
def test_large_arrays_lie_beside_the_pickle_and_small_ones_in_it() -> None:
    small, large = np.arange(5), np.arange(LARGE)
    value = packed({"small": small, "large": [large, 2 * large], "word": "w"})
    assert [length for _, length in value.places] == [large.nbytes] * 2
    assert all(at % 64 == 0 for at, _ in value.places)
    assert len(value.body) < 2_000
    there = value.unpacked()
    assert (there["small"].tolist(), there["word"]) == (small.tolist(), "w")
    assert np.array_equal(there["large"][0], large)
    assert np.array_equal(there["large"][1], 2 * large)
    assert packed(small).memory is None


@needs_memory
def test_a_broadcast_is_read_in_place_and_cannot_be_written_to() -> None:
    w = Params({"a": torch.arange(21_000.0).view(300, 70), "b": torch.ones(7)}).clone()
    value, maps = packed(Broadcast(3, w, Params({}), {})), len(serving.held_maps)
    received = [value.unpacked() for _ in range(2)]
    assert len(serving.held_maps) == maps + 2
    for one in received:
        assert torch.equal(one.w.flat, w.flat)
        assert one.w.flat.data_ptr() % 4096 == 0  # the first of its pages: it is no copy
    with pytest.raises(TypeError, match="read-only"):
        value.memory.parts(value.places)[0][0] = 1  # type: ignore[index,union-attr]


@needs_memory
def test_the_memory_is_given_back_with_the_last_that_holds_it() -> None:
    before = open_files()
    value = packed(np.arange(LARGE))
    there = value.unpacked()
    assert open_files() == before + 2  # the parcel's descriptor, and the map's
    del value
    assert there[-1] == LARGE - 1  # it can be read still
    del there
    assert open_files() == before
