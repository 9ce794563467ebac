"""What only calls by socket have: ends that close, folders of sockets, and actors without one. The laws that
hold for every transport are in test_transports.py.
"""

from __future__ import annotations

import os
import queue
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raffed.runtime.ray.transport import RayCalls, SocketCalls
from tests.runtime.ray.echo_actor import ACTOR
from tests.runtime.ray.test_transports import answer

pytestmark = pytest.mark.usefixtures("ray_here")


def calls_to(*actors: Any) -> SocketCalls:
    return SocketCalls(RayCalls(dict(enumerate(actors))), range(len(actors)))


@pytest.fixture
def mortal() -> Iterator[SocketCalls]:
    """Calls of a test that ends an actor."""
    actors = [ACTOR.remote() for _ in range(2)]
    made = calls_to(*actors)
    yield made
    for actor in actors:
        ray.kill(actor, no_restart=True)
    made.close()


def test_a_killed_actor_is_reached_no_more(mortal: SocketCalls) -> None:
    os.kill(answer(mortal, 0, "pid"), signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        answer(mortal, 0, "echo", 1)
    assert [mortal.reaches(actor) for actor in (0, 1)] == [False, True]


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


def test_an_actor_that_is_dead_before_it_is_connected_to_is_left_to_ray() -> None:
    actor = ACTOR.remote()
    ray.kill(actor, no_restart=True)
    assert not calls_to(actor).reaches(0)


def test_where_a_socket_finds_no_folder_calls_stay_with_ray() -> None:
    actor = ACTOR.remote(None, room=False)
    assert not calls_to(actor).reaches(0)
    assert ray.get(actor.echo.remote(1)) == 1
    ray.kill(actor, no_restart=True)


def test_below_a_deep_folder_a_socket_lies_elsewhere(tmp_path: Path) -> None:
    """A socket's path has some 100 characters at most; a deep TMPDIR is longer."""
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    actor = ACTOR.remote(str(deep))
    channels = calls_to(actor)
    assert answer(channels, 0, "echo", 1) == 1
    assert not list(deep.iterdir())
    ray.kill(actor, no_restart=True)
    channels.close()


def test_no_file_is_left_behind_once_an_actor_is_connected() -> None:
    with tempfile.TemporaryDirectory(prefix="c-") as short:
        actor = ACTOR.remote(short)
        channels = calls_to(actor)
        assert answer(channels, 0, "echo", 1) == 1
        assert not list(Path(short).iterdir())
        ray.kill(actor, no_restart=True)
        channels.close()
