"""Where the time of a round goes: every second is counted once, and the slowest worker decides."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import raffed
from raffed import Numerics
from raffed.runtime import worker
from raffed.runtime.api import ShareSeconds, Stopwatch
from tests.runtime.conftest import small

ELSEWHERE = os.getpid() + 1
SLOW = ShareSeconds(ELSEWHERE, training=6.0, sums=1.0, scoring=2.0, disk=0.5, total=10.0)
FAST = ShareSeconds(ELSEWHERE + 1, training=3.0, sums=1.0, scoring=2.0, disk=0.5, total=7.0)


def test_messages_are_what_was_waited_beyond_the_slowest_worker() -> None:
    watch = Stopwatch()
    watch.waited(12.0, [FAST, SLOW, FAST])
    assert watch.lap()[:5] == (6.0, 1.0, 2.0, 2.0, 0.5)


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


@pytest.mark.parametrize("cohort", [0, 5])
def test_a_client_s_seconds_are_those_of_its_local_round_alone(
    cohort: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fig. 4 of FedMR: training takes 8 s, everything before and after it more; five clients in one stack
    have 8/5 s each.
    """
    now = [0.0]

    def takes(seconds: float, owner: Any, name: str) -> None:
        """Let a function also let time pass."""
        function: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    takes(8.0, worker, "client_rounds")
    takes(100.0, worker, "participant_of")
    takes(100.0, worker.RoundScorer, "of")
    takes(100.0, worker.ClientStateStore, "put")
    takes(100.0, worker.UploadPipeline, "send")
    rows = raffed.run(replace(small("moon", rounds=1), numerics=Numerics(cohort))).to_pandas()
    own = rows[(rows["metric"] == "loss") & rows["client"].notna()]
    assert own["seconds"].tolist() == [pytest.approx(8.0 / max(cohort, 1))] * 5
    assert now[0] > 1000.0  # the others have run
