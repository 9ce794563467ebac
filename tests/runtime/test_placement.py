"""Placement is arithmetic: who lives where, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raffed import Federation, RunConfig, Runtime
from raffed.errors import UsageError
from raffed.runtime.placement import Resources, make_plan, make_stacks

LAPTOP = Resources(cores=2, gpus=0, memory=16 * 2**30)


def config(**runtime: object) -> RunConfig:
    return RunConfig(runtime=Runtime(**runtime))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("participation", "resources", "actors"),
    [
        (1.0, LAPTOP, 2),
        (0.01, Resources(8, 0, 2**40), 1),  # as many as participants
        (1.0, Resources(64, 0, 2 * 2**30), 4),  # 450 MiB each
    ],
)
def test_auto_takes_as_many_actors_as_cores_participants_and_memory_allow(
    participation: float, resources: Resources, actors: int
) -> None:
    asked = RunConfig(federation=Federation(participation=participation))
    assert len(make_plan(asked, 100, resources).homes) == actors


def test_a_hundred_actors_do_not_fit_a_laptop_and_the_message_says_what_does() -> None:
    with pytest.raises(UsageError, match=r"100 actors need about 43\.9 GiB.*at most 36.*at least 3"):
        make_plan(config(clients_per_actor=1), 100, LAPTOP)


def test_gpu_actors_get_unit_fractions_rounded_down() -> None:
    plan = make_plan(config(gpu_fraction=1 / 3), 30, Resources(16, 2, 2**40))
    assert (len(plan.homes), plan.num_gpus) == (6, 0.3333)


@given(st.integers(1, 8), st.lists(st.integers(1, 60), min_size=1, max_size=40), st.randoms())
def test_shares_cover_every_participant_once_and_no_actor_exceeds_the_mean_by_more_than_one_client(
    actors: int, work: list[int], random: object
) -> None:
    clients = max(len(work), actors)
    plan = make_plan(config(actors=actors), clients, Resources(actors, 0, 2**40))
    participants = list(range(clients))[: len(work)]
    shares = plan.shares([(c,) for c in participants], work)
    assert sorted(c for share in shares for (c,) in share) == participants
    loads = [sum(work[c] for (c,) in share) for share in shares]
    assert max(loads) <= sum(work) / actors + max(work)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(0, 12))
def test_stacks_cover_the_participants_once_and_hold_clients_of_neighbouring_sizes(
    sizes: list[int], cohort: int
) -> None:
    stacks = make_stacks(range(len(sizes)), sizes, cohort)
    assert sorted(c for stack in stacks for c in stack) == list(range(len(sizes)))
    assert all(len(stack) <= max(cohort, 1) for stack in stacks)
    if cohort > 1:
        # Only the last is shorter
        assert [len(stack) for stack in stacks[:-1]] == [cohort] * (len(stacks) - 1)
        order = [sizes[c] for stack in stacks for c in stack]
        assert order == sorted(order, reverse=True)
