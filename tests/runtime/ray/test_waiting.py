"""What a run says that it waits for before its first round."""

from __future__ import annotations

import pytest

from raffed.runtime.placement import PlacementPlan
from raffed.runtime.ray.driver import ActorsStarting
from raffed.runtime.ray.launch import awaited_of

PLAN = PlacementPlan(((0,), (1,), (2,)), num_cpus=1.0, num_gpus=0.0, sticky=True)


@pytest.mark.parametrize(
    ("now", "free", "words"),
    [
        (ActorsStarting(3, 3), 0.0, None),
        (
            ActorsStarting(1, 3),
            0.5,
            "2 of 3 client actors, of 1 cores each, to find room or to load; free are 0.5 cores",
        ),
    ],
    ids=["all ready", "waiting"],
)
def test_cores_are_named_only_if_an_actor_is_waited_for(
    now: ActorsStarting, free: float, words: str | None
) -> None:
    assert awaited_of(now, PLAN, {"CPU": free}) == words
