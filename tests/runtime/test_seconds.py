"""Where the time of a round goes: every second is counted once, and the slowest worker decides."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import raffed
from raffed import Numerics
from raffed.runs.events import RoundEvent
from raffed.runtime import worker
from raffed.runtime.reports import NOT_TIMED, ShareSeconds, Stopwatch, slowest_worker
from tests.runtime.conftest import small

ELSEWHERE = os.getpid() + 1
SLOW = ShareSeconds(ELSEWHERE, training=6.0, sums=1.0, scoring=2.0, disk=0.5, total=10.0)
FAST = ShareSeconds(ELSEWHERE + 1, training=3.0, sums=1.0, scoring=2.0, disk=0.5, total=7.0)


def test_the_slowest_worker_is_the_one_with_most_seconds_in_all() -> None:
    assert slowest_worker([FAST, SLOW, FAST]) == SLOW
    assert slowest_worker([]) == NOT_TIMED


def test_messages_are_what_was_waited_beyond_the_slowest_worker() -> None:
    watch = Stopwatch()
    watch.waited(12.0, [SLOW, FAST])
    found = watch.lap()
    assert found[:5] == (6.0, 1.0, 2.0, 2.0, 0.5)


def test_the_parts_of_a_round_add_up_to_the_time_since_the_round_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    watch = Stopwatch()
    with watch.part("training"):
        now[0] += 4.0
    now[0] += 1.0
    with watch.part("disk"):
        now[0] += 2.0
    first = watch.lap()
    assert (first.training, first.disk, first.rest, first.total) == (4.0, 2.0, 1.0, 7.0)
    now[0] += 3.0
    assert watch.lap() == (0.0, 0.0, 0.0, 0.0, 0.0, 3.0)


def test_every_round_of_a_run_has_a_profile_without_messages_in_one_process() -> None:
    seen: list[RoundEvent] = []
    raffed.run(small("map", rounds=2), watch=seen.append)
    profiles = [event.profile for event in seen if event.profile is not None]
    assert len(profiles) == 2
    assert all(one.training > 0 and one.scoring > 0 and one.disk > 0 and one.rest >= 0 for one in profiles)
    assert not any("profile" in event.as_dict() for event in seen)


class Clock:
    """A stand-in for the module `time`: it goes on only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def after(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """The function, which also lets time pass."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("cohort", [0, 5])
def test_a_client_s_seconds_are_those_of_its_local_round_alone(
    cohort: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fig. 4 of FedMR: training takes 8 s, everything before and after it more; five clients in one stack
    have 8/5 s each.
    """
    clock = Clock()
    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(worker, "client_rounds", clock.after(worker.client_rounds, 8.0))
    for owner, name in (
        (worker, "participant_of"),
        (worker.RoundScorer, "of"),
        (worker.ClientStateStore, "put"),
        (worker.UploadPipeline, "send"),
    ):
        monkeypatch.setattr(owner, name, clock.after(getattr(owner, name), 100.0))
    rows = raffed.run(replace(small("moon", rounds=1), numerics=Numerics(cohort))).to_pandas()
    own = rows[(rows["metric"] == "loss") & rows["client"].notna()]
    assert own["seconds"].tolist() == [pytest.approx(8.0 / max(cohort, 1))] * 5
    assert clock.now > 1000.0  # the others have run
