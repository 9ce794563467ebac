"""Which answers are added on the node of their actors."""

from __future__ import annotations

from typing import Any

from raffed.runtime.ray.node_sums import groups_by_node
from raffed.runtime.ray.transport import CallId, RayCallId

NODES = {0: "here", 1: "here", 2: "a", 3: "b", 4: "a", 5: "c"}


def grouped(calls: list[CallId[Any]], nodes: dict[int, str] = NODES) -> list[list[int]]:
    return [[one.actor for one in group] for group in groups_by_node(calls, nodes, "here")]


def test_two_actors_of_another_node_are_a_group_and_neither_single_ones_nor_the_drivers_neighbours() -> None:
    assert grouped([RayCallId(actor, None) for actor in range(6)]) == [[2, 4]]


def test_calls_by_socket_and_actors_whose_node_is_not_known_are_answered_to_the_driver() -> None:
    assert grouped([CallId(2), RayCallId(4, None), RayCallId(9, None), RayCallId(8, None)]) == []
    assert grouped([RayCallId(actor, None) for actor in range(6)], {}) == []
