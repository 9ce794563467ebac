"""Partial sums that are added on the node of their actors, so that the driver receives one for each node.

Sums over clients are exact (docs/design.md §3), so where they are added changes no bit. Without this, the
driver of 1,024 actors receives and adds 1,024 uploads in each round, which takes it longer than the training
(cluster/README.md has a table). On the driver's own node nothing is gained, because it reads the memory of
its actors in place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from raffed.runtime.ray.transport import Call, CallId, RayCallId

# Why an actor was lost or failed: it could not start, it ran out of memory, or something else.


# Words of Python, of CUDA, and of torch's allocator
NO_MEMORY = "MemoryError|out of memory|can't allocate memory"


def why_not_started(error: RayActorError) -> str | None:
    """Return the error that an actor raised while it was made, as its type and the first line of its message.

    Returns None if the actor ended for another reason. Ray keeps only the text. For each error of a chain,
    this is a line `ray::Class.__init__() (pid=…)`, then indented frames, then the error.
    """
    if not error.actor_init_failed:
        return None
    lines = str(error).splitlines()
    last = max(
        (number for number, line in enumerate(lines) if "ray::" in line and "(pid=" in line), default=-1
    )
    told = [line.strip() for line in lines[last + 1 :] if line.strip() and not line[0].isspace()]
    return told[0] if told else lines[-1].strip()


def out_of_memory(error: Exception) -> bool:
    """Return whether Ray's monitor or CUDA reported a lack of memory.

    An actor that was simply killed is not a sign of it.
    """
    if isinstance(error, RayActorError) and (why := why_not_started(error)) is not None:
        return re.search(NO_MEMORY, why, re.IGNORECASE) is not None
    cause = getattr(error, "cause", None)
    named = {type(one).__name__ for one in (error, cause)}
    return (
        bool(named & {"OutOfMemoryError", "MemoryError"})
        or "memory monitor" in str(error)
        or "due to OOM" in str(error)
    )


def memory_line(error: Exception) -> str:
    """Return the last line of an error's text that is about memory, or the error's type."""
    lines = [line.strip() for line in str(error).splitlines() if "memory" in line.lower()]
    return lines[-1] if lines else type(error).__name__


if TYPE_CHECKING:
    from ray import ObjectRef

    from raffed.core.aggregation.uploads import PartialSum
    from raffed.runtime.ray.transport import RayCalls
    from raffed.runtime.reports import Report

    Trained: TypeAlias = tuple[PartialSum, list[Report]]
    # The sum, the reports, and the places in the list of those calls that have no answer
    NodeSum: TypeAlias = tuple[PartialSum, list[Report], list[int]]

T = TypeVar("T")
FEWEST = 2  # actors of a node from which their sums are added there


def add_here(asked: list[ObjectRef[Trained]]) -> NodeSum:
    """Add the answers of the actors of this node. Errors are left to the driver, which replaces actors."""
    from raffed.core.aggregation.uploads import UploadAccumulator

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
