"""Partial sums that are added on the node of their actors, so that the driver receives one for each node.

Sums over clients are exact (docs/design.md §3), so where they are added changes no bit. Without this, the
driver of 1,024 actors receives and adds 1,024 uploads in each round, which takes it longer than the training
(cluster/README.md has a table). On the driver's own node nothing is gained, because it reads the memory of
its actors in place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from raffed.runtime.ray.actor_errors import out_of_memory
from raffed.runtime.ray.ray_calls import RayCallId
from raffed.runtime.ray.transport import Call, CallId

if TYPE_CHECKING:
    from ray import ObjectRef

    from raffed.core.aggregation.exact_sums import PartialSum
    from raffed.runtime.ray.ray_calls import RayCalls
    from raffed.runtime.reports import Report

    Trained: TypeAlias = tuple[PartialSum, list[Report]]
    # The sum, the reports, and the places in the list of those calls that have no answer
    NodeSum: TypeAlias = tuple[PartialSum, list[Report], list[int]]

T = TypeVar("T")
FEWEST = 2  # actors of a node from which their sums are added there


def add_here(asked: list[ObjectRef[Trained]]) -> NodeSum:
    """Add the answers of the actors of this node. Errors are left to the driver, which replaces actors."""
    from raffed.core.aggregation.exact_sums import UploadAccumulator

    accumulator = UploadAccumulator()
    reports: list[Report] = []
    failed: list[int] = []
    for place, reference in enumerate(asked):
        try:
            partial, theirs = ray.get(reference)
        except RayError:  # the driver asks for the same answer and handles its error
            failed.append(place)
            continue
        accumulator.merge(partial)
        reports += theirs
    return accumulator.export(), reports, failed


def groups_by_node(
    calls: Iterable[CallId[T]], nodes: Mapping[int, str], here: str
) -> list[list[RayCallId[T]]]:
    """Return the calls through Ray whose answers are added on the node of their actors, by node.

    Args:
        calls: The calls that were made.
        nodes: Actor → its node, as far as it is known.
        here: The driver's node.
    """
    found: dict[str, list[RayCallId[T]]] = defaultdict(list)
    for one in calls:
        node = nodes.get(one.actor, here)
        if isinstance(one, RayCallId) and node != here:
            found[node].append(one)
    return [group for group in found.values() if len(group) >= FEWEST]


class NodeSums:
    """The sums of the nodes in one round, asked for when the calls have been made.

    The first actor of a node adds them, after its own training.
    """

    def __init__(self, through_ray: RayCalls, groups: list[list[RayCallId[Trained]]]) -> None:
        self._asked: list[tuple[list[RayCallId[Trained]], RayCallId[NodeSum]]] = []
        for group in groups:
            call: Call[NodeSum] = Call("add_here", ([one.reference for one in group],))
            self._asked.append((group, through_ray.call(group[0].actor, call)))

    def take(self, pending: dict[CallId[Trained], T]) -> Iterable[Trained]:
        """Yield each node's sum, and remove the calls that are in it from `pending`.

        What is left there has to be asked for one by one.
        """
        for group, call in self._asked:
            try:
                partial, reports, failed = ray.get(call.reference)
            except RayError as error:  # then the answers are fetched one by one, unless it is a fault
                if not isinstance(error, RayActorError) and not out_of_memory(error):
                    raise
                continue
            for place, one in enumerate(group):
                if place not in failed:
                    del pending[one]
            yield partial, reports


__all__ = ["NodeSums", "add_here", "groups_by_node"]
