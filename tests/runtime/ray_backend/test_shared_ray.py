"""One Ray a process: it comes with the first run that needs it and goes with the last."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

import raffed
from raffed.errors import UsageError
from raffed.runtime.ray_backend.shared_ray import SharedRay
from tests.runtime.conftest import on, small
from tests.runtime.test_beside_others import in_threads


class Counted:
    """Stands in for Ray: how often it was begun and ended, and in which thread."""

    def __init__(self) -> None:
        self.begun: list[threading.Thread] = []
        self.ended: list[threading.Thread] = []

    def begin(self) -> Callable[[], None]:
        self.begun.append(threading.current_thread())
        return lambda: self.ended.append(threading.current_thread())


def test_the_second_user_gets_the_first_one_s_ray_which_ends_with_the_last() -> None:
    ray = Counted()
    first, second = SharedRay.taken(None, ray.begin), SharedRay.taken(None, ray.begin)
    first.began.result(10), second.began.result(10)
    first.let_go()
    assert (len(ray.begun), len(ray.ended)) == (1, 0)
    second.let_go()
    assert ray.begun == ray.ended  # in one thread: Ray's processes end with the thread that forked them
    third = SharedRay.taken(None, ray.begin)
    third.let_go()
    assert (len(ray.begun), len(ray.ended)) == (2, 2)


def test_users_that_come_and_go_at_once_never_see_two_rays() -> None:
    alive, most, lock = [0], [0], threading.Lock()

    def begin() -> Callable[[], None]:
        with lock:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
        return end

    def end() -> None:
        with lock:
            alive[0] -= 1

    def use() -> None:
        for _ in range(30):
            shared = SharedRay.taken(None, begin)
            shared.began.result(10)
            assert alive[0] == 1
            shared.let_go()

    in_threads(*[use] * 4)
    assert (alive, most) == ([0], [1])


def test_a_ray_that_could_not_begin_is_told_to_its_users_and_tried_again_by_the_next() -> None:
    def broken() -> Callable[[], None]:
        raise UsageError("no Ray here")

    first = SharedRay.taken(None, broken)
    with pytest.raises(UsageError, match="no Ray here"):
        first.began.result(10)
    ray = Counted()
    second = SharedRay.taken(None, ray.begin)
    second.began.result(10)
    first.let_go()
    assert not ray.ended
    second.let_go()
    assert len(ray.ended) == 1


def test_another_address_than_that_of_the_ray_in_use_is_refused() -> None:
    ray = Counted()
    own = SharedRay.taken(None, ray.begin)
    with pytest.raises(
        UsageError, match=r"--address 10\.0\.0\.1:6379: another run of this process uses a Ray of its own"
    ):
        SharedRay.taken("10.0.0.1:6379", ray.begin)
    own.let_go()


@pytest.mark.slow
def test_two_runs_on_ray_at_once_give_the_serial_bits(reference: dict[str, dict[str, str]]) -> None:
    names = ("scamap", "fedmr")
    both = [lambda n=name: raffed.run(on(small(n), execution="ray", actors=1)).hashes for name in names]
    assert in_threads(*both) == [reference[name] for name in names]


@pytest.mark.slow
def test_runs_on_ray_do_not_leave_a_thread_behind_each() -> None:
    """gRPC's pool of threads grows for a while, by one or two in all."""

    def go() -> int:
        raffed.run(on(small("fedavg", 1), execution="ray", actors=1))
        return len(os.listdir("/proc/self/task"))

    first = go()
    assert [go() for _ in range(4)][-1] < first + 4


def test_an_own_ray_that_was_asked_for_by_name_is_the_one_of_a_run_that_named_none() -> None:
    ray = Counted()
    for first, second in ((None, "local"), ("local", None), ("local", "local")):
        users = [SharedRay.taken(address, ray.begin) for address in (first, second)]
        assert users[0] is users[1]
        for user in users:
            user.let_go()


def test_an_own_ray_is_not_the_cluster_of_the_job_that_a_run_without_address_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    joined = SharedRay.taken(None, Counted().begin)
    with pytest.raises(UsageError, match="--address local: another run of this process uses the Ray at auto"):
        SharedRay.taken("local", Counted().begin)
    joined.let_go()


def test_a_cluster_may_be_named_by_its_address_or_by_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"auto": "10.0.0.1:6379", "10.0.0.1:6379": "10.0.0.1:6379", "10.0.0.2:6379": "10.0.0.2:6379"}
    monkeypatch.setattr("raffed.runtime.ray_backend.address.found", named.__getitem__)
    ray = Counted()
    first, second = SharedRay.taken("auto", ray.begin), SharedRay.taken("10.0.0.1:6379", ray.begin)
    assert first is second
    with pytest.raises(UsageError, match="uses the Ray at auto"):
        SharedRay.taken("10.0.0.2:6379", ray.begin)
    first.let_go(), second.let_go()
