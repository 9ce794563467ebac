"""The driver actor, and its pool of client actors.

It owns the client actors, holds the server's state, aggregates, and writes the run's files.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import ray
from numpy.typing import NDArray
from ray import ObjectRef
from ray.exceptions import RayActorError

from raffed.core.aggregation.uploads import PartialSum, UploadAccumulator
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import Broadcast
from raffed.errors import ActorsLostError, ActorStartError
from raffed.runtime.api import Asked, Report, RoundOrder, ServerWork, SurveyedClient
from raffed.runtime.federated_data import PARTS, chunks
from raffed.runtime.machine import begin_bits, begin_training
from raffed.runtime.placement import INLINE_BYTES, PlacementPlan
from raffed.runtime.ray import client_actor
from raffed.runtime.ray.nodes import CodeVersions, check_same
from raffed.runtime.ray.transport import Call, CallId, Handle, RayCalls, Shared, Transport, opened
from raffed.runtime.setup import Setup
from raffed.runtime.worker import total

# Client actors as a `Backend`.
#
# Each actor gets one call per round, each node gets one copy of the broadcast, and lost actors are
# replaced.


Trained = tuple[PartialSum, list[Report]]
# Starts an actor: the reference to the setup, the plan, the number of the actor, the folder of client states
Start = Callable[["ObjectRef[Setup]", PlacementPlan, int, Path], "Handle"]
T = TypeVar("T")
log = logging.getLogger(__name__)


LOADED = Call[bool]("__ray_ready__")  # a method of Ray's


class RayPool:
    """The actors of a run. Exact sums make the order of their answers irrelevant."""

    def __init__(
        self,
        setup: Setup,
        setup_ref: ObjectRef[Setup],
        plan: PlacementPlan,
        states_folder: Path,
        actors: list[Handle],
        start: Start,
    ) -> None:
        self._setup, self._setup_ref, self._plan, self._states_folder = setup, setup_ref, plan, states_folder
        self._actors, self._start = actors, start
        self._restarts, self._retired = 0, set[int]()
        self._chunks = {part: chunks(setup.data, part) for part in PARTS}
        self._nodes: dict[int, str] = {}
        self._through_ray = RayCalls(dict(enumerate(actors)), self._end_homeless)
        self._loading: dict[int, ObjectRef[bool]] = {}
        self._sent: tuple[Broadcast, Shared[Broadcast]] | None = None
        self._transport: Transport = self._through_ray
        self._connected, self._here = False, ""

    def train(self, order: RoundOrder) -> Asked[Trained]:
        self._connect(order.broadcast)
        calls = self._spread(Call[Trained]("train", (self._shared(order.broadcast),)), order)
        pending = dict(self._made(actor, actor, call) for actor, call in calls.items())
        sums = client_actor.NodeSums(
            self._through_ray, client_actor.groups_by_node(pending, self._nodes, self._here)
        )

        def trained() -> Trained:
            accumulator = UploadAccumulator()
            reports: dict[int, Report] = {}
            # Each is added when it arrives, so that the driver never holds all of them
            arriving = (answer for _, answer in self._outcomes(pending))
            for part, client_reports in itertools.chain(sums.take(pending), arriving):
                accumulator.merge(part)
                reports.update({report.client: report for report in client_reports})
            return accumulator.export(), [reports[client] for client in order.participants]

        return trained

    def losses(self, order: RoundOrder) -> list[float]:
        call = Call[dict[int, float]]("losses", (self._shared(order.broadcast),))
        answers = self._ask(self._spread(call, order))()
        losses = {client: loss for answer in answers for client, loss in answer.items()}
        return [losses[client] for client in order.participants]

    def survey(self, order: RoundOrder, whole: Broadcast | None) -> list[SurveyedClient]:
        sent = self._shared(order.broadcast), None if whole is None else self._shared(whole)
        answers = self._ask(self._spread(Call[list[SurveyedClient]]("survey", sent), order))()
        by_client = {scored.client: scored for answer in answers for scored in answer}
        return [by_client[client] for client in order.participants if client in by_client]

    def own_layers(self, order: RoundOrder) -> list[NDArray[np.int64]]:
        answers = self._ask(self._spread(Call[NDArray[np.int64] | None]("own_layers"), order))()
        return [answer for answer in answers if answer is not None]

    def _spread(self, call: Call[T], order: RoundOrder) -> dict[int, Call[T]]:
        """Return the call for every actor that has a share of the work, with this share as last argument."""
        # A survey after the last round uses the sizes of that round
        last = self._setup.config.federation.rounds - 1
        local, sizes = self._setup.config.local, self._setup.data.sizes_at(min(order.round, last))
        work = [sum(local.steps(sizes[client]) for client in stack) for stack in order.stacks]
        shares = enumerate(self._plan.shares(order.stacks, work, self._retired))
        return {actor: call.then(order.share(stacks)) for actor, stacks in shares if stacks}

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[ScoreCounts]:
        sent, left, numbers = self._shared(broadcast), self._left(), self._chunks[part]
        call = Call[dict[int, ScoreCounts]]("evaluate", (sent,))
        calls = {actor: call.then(numbers[i :: len(left)]) for i, actor in enumerate(left[: len(numbers)])}
        asked = self._ask(calls)
        return lambda: total({chunk: counts for answer in asked() for chunk, counts in answer.items()})

    def client_state_digests(self, versions: dict[int, int]) -> dict[int, str]:
        homes = enumerate(self._plan.homes)
        mine = {actor: {c: versions[c] for c in home if c in versions} for actor, home in homes}
        for gone in self._retired:  # their clients' states are in the store
            mine[self._left()[0]].update(mine.pop(gone))
        calls = {actor: Call[dict[int, str]]("digests", (those,)) for actor, those in mine.items()}
        return {client: text for answer in self._ask(calls)() for client, text in answer.items()}

    @property
    def apart(self) -> bool:
        return self._plan.num_gpus > 0

    def server_work(self, work: ServerWork[T]) -> T:
        [answer] = self._ask({self._left()[0]: Call[T]("server_work", (work,))})()
        return answer

    def placement(self) -> dict[str, object]:
        """Return how the work is placed, after every actor has loaded torch and its data."""
        asked = self._left()  # if one of them runs out of memory while it loads, another one answers
        places = self._ask(dict.fromkeys(asked, Call[client_actor.Place]("ready")))()
        self._nodes = {actor: str(place["node"]) for actor, place in zip(asked, places, strict=True)}
        about = {
            **self._plan.describe(),
            "driver_pid": os.getpid(),
            "restarts": self._restarts,
            "places": places,
        }
        return {**about, "retired": sorted(self._retired)} if self._retired else about

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors, self._sent = [], None
        self._loading.clear()
        self._transport.close()

    def _shared(self, broadcast: Broadcast) -> Shared[Broadcast]:
        """Return an argument of which each node has one copy, which every actor reads in place.

        It is the one before if that holds the same: what is scored is mostly what the next round trains.
        """
        if self._sent is None or not _same(broadcast, self._sent[0]):
            self._sent = broadcast, Shared(broadcast, broadcast.nbytes() <= INLINE_BYTES)
        return self._sent[1]

    def _ask(self, calls: Mapping[int, Call[T]]) -> Asked[list[T]]:
        """Call actors now, and return a function that waits for the answers, in order of actor number.

        An actor that is lost is replaced and asked again. An actor that ran out of memory is not replaced:
        its calls go to another one. An actor that could not start ends the run.
        """
        pending = dict(self._made(actor, actor, call) for actor, call in calls.items())
        return lambda: self._answers(pending)

    def _made(self, asked: int, actor: int, call: Call[T]) -> tuple[CallId[T], _Pending[T]]:
        return self._transport.call(actor, call), _Pending(asked, actor, self._actors[actor], call)

    def _connect(self, broadcast: Broadcast) -> None:
        """Open the transport of the run, once it is known where the actors are.

        An actor that replaces another one is called through Ray.
        """
        if self._connected or not self._nodes:
            return
        self._here = ray.get_runtime_context().get_node_id()
        near = [actor for actor in self._left() if self._nodes[actor] == self._here]
        far = [actor for actor in self._left() if self._nodes[actor] != self._here]
        self._transport = opened(self._through_ray, near, far, broadcast.nbytes())
        self._connected = True

    def _answers(self, pending: dict[CallId[T], _Pending[T]]) -> list[T]:
        """Wait for the answers of all pending calls, and return them in order of the actors asked."""
        answers = dict(self._outcomes(pending))
        return [answers[asked] for asked in sorted(answers)]

    def _outcomes(self, pending: dict[CallId[T], _Pending[T]]) -> Iterator[tuple[int, T]]:
        """Yield (actor asked, its answer) of all pending calls as they arrive."""
        while pending:
            arrived, outcome = self._transport.first(pending)
            request = pending.pop(arrived)
            try:
                answer = outcome()
            except Exception as error:  # noqa: BLE001 (raised unless another actor can answer)
                again = self._made(request.asked, self._instead(request, error), request.call)
                pending.update([again])
                continue
            yield request.asked, answer

    def _instead(self, request: _Pending[T], error: Exception) -> int:
        """Return the actor that answers a call that failed, or raise an error that ends the run."""
        if not isinstance(error, RayActorError):  # raised by the work itself
            if client_actor.out_of_memory(error):
                return self._retire(request.actor, error)
            raise error
        if request.actor in self._retired or client_actor.out_of_memory(error):
            return self._retire(request.actor, error)
        if (why := client_actor.why_not_started(error)) is not None:
            raise ActorStartError(
                f"client actor {request.actor} could not start: {why}{client_actor.MEND}"
            ) from error
        if self._actors[request.actor] is request.handle:  # otherwise it was replaced because of another call
            self._replace(request.actor, error)
            if not self._has_room():
                return self._do_without(request.actor, error)
        return request.actor

    def _has_room(self) -> bool:
        """Return whether the cluster has the cores and GPUs of all actors, without the node of a lost one."""
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        wanted = {"CPU": self._plan.num_cpus, "GPU": self._plan.num_gpus}
        return all(there.get(kind, 0.0) >= len(self._left()) * each for kind, each in wanted.items())

    def _end_homeless(self) -> None:
        """End the replacements that wait for a node that is gone, so that `_instead` does without them.

        Ray may notice the loss of a node long after that of its actors, and it would wait for ever.
        """
        loading = [] if self._has_room() else list(self._loading.items())
        for actor, loaded in loading:
            if not ray.wait([loaded], timeout=0, fetch_local=False)[0]:
                ray.kill(self._actors[actor], no_restart=True)

    def _left(self) -> list[int]:
        """Return the actors that still work."""
        return [actor for actor in range(len(self._actors)) if actor not in self._retired]

    def _retire(self, actor: int, error: Exception) -> int:
        """Give up an actor that ran out of memory, and return the actor that takes over its work."""
        if actor not in self._retired:
            advice = (
                "fewer actors (--actors), a smaller batch, or precision bf16 on a GPU; `raffed resume` "
                "continues the run"
            )
            what, why = f"client actor {actor} ran out of memory", client_actor.memory_line(error)
            left = self._hand_over(actor, f"{what}, and %s. {why} Use {advice}", error)
            same = f"its clients move to the other {left}, the result stays the same"
            log.warning("%s; %s. %s Next time: %s", what, same, why, advice)
        return self._left()[0]

    def _do_without(self, actor: int, error: Exception) -> int:
        """Give up an actor whose replacement finds no room, and return the actor that takes over its work."""
        what = f"client actor {actor} was lost, and no node has room for another one"
        more = "Free some cores or add a node; `raffed resume` continues the run"
        left = self._hand_over(actor, f"{what}; %s. {more}", error)
        log.warning("%s; its clients move to the other %d, the result stays the same", what, left)
        return self._left()[0]

    def _hand_over(self, actor: int, message: str, error: Exception) -> int:
        """End an actor for good, and return how many are left.

        Raises:
            ActorsLostError: No other actor can do its work. Its text is `message` with the reason for %s.
        """
        self._retired.add(actor)
        ray.kill(self._actors[actor], no_restart=True)
        left = len(self._left())
        if self._plan.sticky or not left:
            why = "one actor a client cannot lend its client" if self._plan.sticky else "no actor is left"
            raise ActorsLostError(message.replace("%s", why, 1)) from error
        return left

    def _replace(self, actor: int, error: RayActorError) -> None:
        self._restarts += 1
        limit = self._setup.config.runtime.max_restarts
        if self._restarts > limit:
            raise ActorsLostError(
                f"client actors died {self._restarts} times, more than runtime.max_restarts = {limit}; the "
                f"last: actor {actor}. "
                f"{str(error).splitlines()[0]} If memory ran out, use fewer actors; `raffed resume` "
                f"continues the run"
            ) from error
        log.warning(
            "client actor %d was lost and is replaced (replacement %d of %d)", actor, self._restarts, limit
        )
        self._actors[actor] = self._start(self._setup_ref, self._plan, actor, self._states_folder)
        self._transport.replace(actor, self._actors[actor])
        self._loading[actor] = self._through_ray.call(actor, LOADED).reference


@dataclass(frozen=True)
class _Pending(Generic[T]):
    """A call without an answer: the actor that was to answer, the one that was called, and its handle."""

    asked: int
    actor: int
    handle: Handle
    call: Call[T]


def _same(new: Broadcast, old: Broadcast) -> bool:
    """Return whether two broadcasts hold the very same objects."""
    pairs = zip((new.w, new.b, *new.slots.values()), (old.w, old.b, *old.slots.values()), strict=True)
    return (new.round, [*new.slots]) == (old.round, [*old.slots]) and all(a is b for a, b in pairs)


E = TypeVar("E")  # the event of a round, whose class is in a higher layer
# Runs the rounds: the setup, the run's folder, whether it is resumed, the backend, and whether to stop
Conduct = Callable[["Setup", Path, bool, "RayPool", Callable[[], bool]], Iterator[E]]


class ActorsStarting(NamedTuple):
    """How many of the client actors are ready."""

    ready: int
    total: int


def start_actor(
    setup_ref: ObjectRef[Setup],
    plan: PlacementPlan,
    actor: int,
    states_folder: Path,
    sent: CodeVersions | None = None,
) -> Handle:
    """Create client actor number `actor` of the plan, which must have the code `sent`.

    It returns at once, and the actor loads in the background.
    """
    options = {"num_cpus": plan.num_cpus, "num_gpus": plan.num_gpus}
    handle: Handle = client_actor.ClientActor.options(**options).remote(  # type: ignore[attr-defined]
        [setup_ref], str(states_folder), plan.homes[actor], sent
    )
    return handle


@ray.remote(max_restarts=0, max_task_retries=0)
class Driver:
    """Conducts a run in an actor.

    It starts its client actors before it imports torch itself, so that everything loads at the same time. It
    is created with max_concurrency=2, so that `stop` and `starting` are answered while `rounds` runs.

    Args:
        setup_ref: A list that holds the reference to the setup. In a list, Ray passes on the reference and
            not the value.
        plan: Which actor trains which clients.
        path: The run's folder.
        states_folder: The folder of client states.
        sent: The code of the command, which this actor and its client actors must have; None if it cannot
            differ.
    """

    def __init__(
        self,
        setup_ref: list[ObjectRef[Setup]],
        plan: PlacementPlan,
        path: str,
        states_folder: str,
        sent: CodeVersions | None = None,
    ) -> None:
        check_same(sent)
        self._start = partial(start_actor, sent=sent)
        self._ref, self._plan = setup_ref[0], plan
        self._path, self._states_folder = Path(path), Path(states_folder)
        self._actors = [
            self._start(self._ref, plan, actor, self._states_folder) for actor in range(len(plan.homes))
        ]
        through_ray = RayCalls(dict(enumerate(self._actors)))
        self._ready = [through_ray.call(actor, LOADED).reference for actor in range(len(self._actors))]
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the run after the current round. It can be resumed."""
        self._stop.set()

    def starting(self) -> ActorsStarting:
        """Return how many client actors are ready."""
        total = len(self._ready)
        ready = len(ray.wait(self._ready, num_returns=total, timeout=0, fetch_local=False)[0])
        return ActorsStarting(ready, total)

    def rounds(self, conduct: Conduct[E], resumed: bool) -> Iterator[E]:
        """Yield the events of the run, one per round.

        `conduct` runs the rounds on a backend (runs/run.py). It is an argument because this layer may
        not import that one.
        """
        setup: Setup = ray.get(self._ref)
        begin_training(setup.config.runtime.threads)
        begin_bits(setup.config.numerics)

        pool = RayPool(setup, self._ref, self._plan, self._states_folder, self._actors, self._start)
        yield from conduct(setup, self._path, resumed, pool, self._stop.is_set)
