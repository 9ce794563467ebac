"""A client actor: clients with their private state, on a share of a core or GPU.

It loads torch and the data when it starts.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from raffed.runtime.machine import begin_bits, begin_training, gpu_of
from raffed.runtime.ray.nodes import CodeVersions, check_same
from raffed.runtime.ray.serving import Serving
from raffed.runtime.ray.transport import Call, CallId, RayCallId, RayCalls

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from ray import ObjectRef

    from raffed.core.aggregation.uploads import PartialSum
    from raffed.core.measures.scores import ScoreCounts
    from raffed.core.messages import Broadcast
    from raffed.runtime.api import ActorShare, Report, ServerWork, SurveyedClient
    from raffed.runtime.setup import Setup

    Trained: TypeAlias = tuple[PartialSum, list[Report]]
    # The sum, the reports, and the places in the list of those calls that have no answer
    NodeSum: TypeAlias = tuple[PartialSum, list[Report], list[int]]

MEND = (
    "; mend that where it runs (`raffed doctor` looks at a machine), then `raffed resume` continues the run"
)

T = TypeVar("T")
Place = dict[str, str | int | float]  # where an actor runs, for run.json


@ray.remote(max_restarts=0, max_task_retries=0)
class ClientActor(Serving):
    """Trains clients in an actor.

    If a round is requested again, the answer is taken from memory: a round is only computed once.

    Args:
        setup_ref: A list that holds the reference to the setup. It is read once the code is known to be the
            same, because other code may not be able to read it.
        states_folder: The folder of client states.
        home: The clients whose states the actor keeps.
        sent: The code of the process that sends the work; None if it cannot differ.
    """

    def __init__(
        self,
        setup_ref: list[ObjectRef[Setup]],
        states_folder: str,
        home: tuple[int, ...],
        sent: CodeVersions | None = None,
    ) -> None:
        began = time.perf_counter()
        check_same(sent)
        setup: Setup = ray.get(setup_ref[0])
        begin_training(setup.config.runtime.threads)
        begin_bits(setup.config.numerics)
        from raffed.runtime.worker import ClientWorker

        self._worker = ClientWorker(setup, Path(states_folder), self._device(), home=frozenset(home))
        self._worker.warm_up()
        self._answers: dict[tuple[int, ActorShare], tuple[PartialSum, list[Report]]] = {}
        self._seconds = time.perf_counter() - began

    def _device(self) -> str:
        """Return the device that Ray assigned to this actor, never one that just happens to be visible."""
        assigned = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        # CUDA_VISIBLE_DEVICES holds only the assigned GPU, so its name is cuda:0
        return "cuda" if assigned else "cpu"

    def ready(self) -> Place:
        """Return where the actor runs, for run.json and the tests, once torch and the data are loaded."""
        node, device = ray.get_runtime_context().get_node_id(), self._worker.device
        return {
            "pid": os.getpid(),
            "node": node,
            "seconds": self._seconds,
            "device": str(device),
            **gpu_of(device),
        }

    def train(self, broadcast: Broadcast, share: ActorShare) -> tuple[PartialSum, list[Report]]:
        """Train this actor's share of a round. The broadcast is read from the object store without a copy."""
        key = broadcast.round, share
        if key not in self._answers:
            self._answers = {
                old: answer for old, answer in self._answers.items() if old[0] == broadcast.round
            }
            self._answers[key] = self._worker.train(broadcast, share)
        return self._answers[key]

    def add_here(self, asked: list[ObjectRef[Trained]]) -> NodeSum:
        """Add the answers of the actors of this node to a round, which this actor has trained before."""
        return add_here(asked)

    def evaluate(self, broadcast: Broadcast, chunks: range) -> dict[int, ScoreCounts]:
        return self._worker.evaluate(broadcast, chunks)

    def losses(self, broadcast: Broadcast, share: ActorShare) -> dict[int, float]:
        return self._worker.losses(broadcast, share)

    def survey(
        self, broadcast: Broadcast, whole: Broadcast | None, share: ActorShare
    ) -> list[SurveyedClient]:
        return self._worker.survey(broadcast, whole, share)

    def own_layers(self, share: ActorShare) -> NDArray[np.int64] | None:
        return self._worker.own_layers(share)

    def server_work(self, work: ServerWork[T]) -> T:
        return self._worker.server_work(work)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._worker.store.digests(versions)


# Partial sums that are added on the node of their actors, so that the driver receives one for each node.
#
# Sums over clients are exact (docs/design.md §3), so where they are added changes no bit. Without this, the
# driver of 1,024 actors receives and adds 1,024 uploads in each round, which takes it longer than the
# training (cluster/README.md has a table). On the driver's own node nothing is gained, because it reads the
# memory of its actors in place.


FEWEST = 2  # actors of a node from which their sums are added there


def add_here(asked: list[ObjectRef[Trained]]) -> NodeSum:
    """Add the answers of the actors of this node. Errors are left to the driver, which replaces actors."""
    from raffed.core.aggregation.uploads import UploadAccumulator

    accumulator = UploadAccumulator()
    reports: list[Report] = []
    failed: list[int] = []
    for place, reference in enumerate(asked):
        try:
            partial, client_reports = ray.get(reference)
        except RayError:  # the driver asks for the same answer and handles its error
            failed.append(place)
            continue
        accumulator.merge(partial)
        reports += client_reports
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
    groups: dict[str, list[RayCallId[T]]] = defaultdict(list)
    for call in calls:
        node = nodes.get(call.actor, here)
        if isinstance(call, RayCallId) and node != here:
            groups[node].append(call)
    return [group for group in groups.values() if len(group) >= FEWEST]


class NodeSums:
    """The sums of the nodes in one round, asked for when the calls have been made.

    The first actor of a node adds them, after its own training.
    """

    def __init__(self, through_ray: RayCalls, groups: list[list[RayCallId[Trained]]]) -> None:
        self._asked: list[tuple[list[RayCallId[Trained]], RayCallId[NodeSum]]] = []
        for group in groups:
            call: Call[NodeSum] = Call("add_here", ([member.reference for member in group],))
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
            for place, member in enumerate(group):
                if place not in failed:
                    del pending[member]
            yield partial, reports


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
    named = {type(exception).__name__ for exception in (error, cause)}
    return (
        bool(named & {"OutOfMemoryError", "MemoryError"})
        or "memory monitor" in str(error)
        or "due to OOM" in str(error)
    )


def memory_line(error: Exception) -> str:
    """Return the last line of an error's text that is about memory, or the error's type."""
    lines = [line.strip() for line in str(error).splitlines() if "memory" in line.lower()]
    return lines[-1] if lines else type(error).__name__
