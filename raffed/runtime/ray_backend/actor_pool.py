"""Client actors as a `Backend`.

Each actor gets one call per round, each node gets one copy of the broadcast, and lost actors are replaced.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayActorError

from raffed.core.aggregation.accumulator import PartialSum, UploadAccumulator
from raffed.core.messages import Broadcast
from raffed.errors import ActorsLostError, ActorStartError, RaffedError
from raffed.runtime.api import Asked, RoundOrder
from raffed.runtime.placement import INLINE_BYTES, PlacementPlan
from raffed.runtime.ray_backend.client_actor import MEND, why_not_started
from raffed.runtime.ray_backend.shared_memory import SHARES
from raffed.runtime.ray_backend.socket_calls import CallId, CallOutcome, Shared, SocketCalls
from raffed.runtime.reports import Report, ScoreCounts, SurveyedClient
from raffed.runtime.setup import Setup
from raffed.runtime.worker import chunks, total

Call = tuple[str, tuple[Any, ...]]
# Words of Python, of CUDA, and of torch's allocator
NO_MEMORY = "MemoryError|out of memory|can't allocate memory"
Start = Callable[[Any, PlacementPlan, int, Path], Any]
log = logging.getLogger(__name__)


class RayPool:
    """The actors of a run. Exact sums make the order of their answers irrelevant."""

    def __init__(
        self, setup: Setup, setup_ref: Any, plan: PlacementPlan, vaults: Path, actors: list[Any], start: Start
    ) -> None:
        self._setup, self._setup_ref, self._plan, self._vaults = setup, setup_ref, plan, vaults
        self._actors, self._start = actors, start
        self._restarts, self._retired, self._cut = 0, set[int](), False
        self._chunks = {part: chunks(setup, part) for part in ("test", "val")}
        self._nodes: dict[int, str] = {}
        self._channels: SocketCalls | None = None

    def train(self, job: RoundOrder) -> Asked[tuple[PartialSum, list[Report]]]:
        self._connect(job.broadcast)
        asked = self._ask(self._spread("train", (_shared(job.broadcast),), job))

        def trained() -> tuple[PartialSum, list[Report]]:
            fold = UploadAccumulator()
            reports: dict[int, Report] = {}
            for partial, theirs in asked():
                fold.merge(partial)
                reports.update({report.client: report for report in theirs})
            return fold.export(), [reports[client] for client in job.participants]

        return trained

    def survey(self, job: RoundOrder, whole: Broadcast | None) -> list[SurveyedClient]:
        sent = _shared(job.broadcast), None if whole is None else _shared(whole)
        answers = self._ask(self._spread("survey", sent, job))()
        found = {standing.client: standing for answer in answers for standing in answer}
        return [found[client] for client in job.participants if client in found]

    def own_layers(self, job: RoundOrder) -> list[NDArray[np.int64]]:
        answers = self._ask(self._spread("own_layers", (), job))()
        return [answer for answer in answers if answer is not None]

    def _spread(self, name: str, before: tuple[Any, ...], job: RoundOrder) -> dict[int, Call]:
        """Return a call for every actor that has a share of the work."""
        # A survey after the last round uses the sizes of that round
        last = self._setup.config.federation.rounds - 1
        local, sizes = self._setup.config.local, self._setup.sizes_at(min(job.round, last))
        work = [sum(local.steps(sizes[client]) for client in stack) for stack in job.stacks]
        shares = enumerate(self._plan.shares(job.stacks, work, self._retired))
        return {actor: (name, (*before, job.share(stacks))) for actor, stacks in shares if stacks}

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[ScoreCounts]:
        sent, left, numbers = _shared(broadcast), self._left(), self._chunks[part]
        calls: dict[int, Call] = {
            actor: ("evaluate", (sent, numbers[i :: len(left)]))
            for i, actor in enumerate(left[: len(numbers)])
        }
        asked = self._ask(calls)
        return lambda: total({chunk: tally for answer in asked() for chunk, tally in answer.items()})

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        homes = enumerate(self._plan.homes)
        mine = {actor: {c: versions[c] for c in home if c in versions} for actor, home in homes}
        for gone in self._retired:  # their clients' states are in the store
            mine[self._left()[0]].update(mine.pop(gone))
        calls: dict[int, Call] = {actor: ("digests", (those,)) for actor, those in mine.items()}
        return {client: text for answer in self._ask(calls)() for client, text in answer.items()}

    def placement(self) -> dict[str, object]:
        """Return how the work is placed, after every actor has loaded torch and its data."""
        asked = self._left()  # if one of them runs out of memory while it loads, another one answers
        places = self._ask(dict.fromkeys(asked, ("ready", ())))()
        self._nodes = {actor: place["node"] for actor, place in zip(asked, places, strict=True)}
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
        self._actors = []
        if self._channels is not None:
            self._channels.settle()

    def cut(self) -> None:
        """End the actors. A thread that waits for their answers gets a KeyboardInterrupt."""
        self._cut = True
        for actor in self._actors:
            ray.kill(actor, no_restart=True)

    def _ask(self, calls: dict[int, Call]) -> Asked[list[Any]]:
        """Call actors now, and return a function that waits for the answers, in order of actor number.

        An actor that is lost is replaced and asked again. An actor that ran out of memory is not replaced:
        its calls go to another one. An actor that could not start ends the run.
        """
        pending = {
            self._call(actor, call): (actor, actor, self._actors[actor], call)
            for actor, call in calls.items()
        }
        return lambda: self._answers(pending)

    def _connect(self, broadcast: Broadcast) -> None:
        """Open sockets to the actors on this node, once.

        This is done for large networks, if the node has memory to share.

        An actor that replaces another one has no socket.
        """
        if self._channels is None and self._nodes and (SHARES or broadcast.nbytes() <= INLINE_BYTES):
            here = ray.get_runtime_context().get_node_id()
            self._channels = SocketCalls(
                {actor: self._actors[actor] for actor in self._left() if self._nodes[actor] == here}
            )

    def _first(self, calls: Collection[Any]) -> tuple[Any, CallOutcome]:
        """Wait until one of these calls has an outcome.

        Calls through Ray are waited for only if no others are left.
        """
        tickets = [call for call in calls if isinstance(call, CallId)]
        if tickets and self._channels is not None:
            return self._channels.first(tickets)
        (ref,), _ = ray.wait(list(calls), num_returns=1)
        return ref, lambda: ray.get(ref)

    def _answers(self, pending: dict[Any, tuple[int, int, Any, Call]]) -> list[Any]:
        """Wait for the answers of all pending calls.

        Args:
            pending: Reference or call id → (actor that was to answer, actor that was called, its handle, the
                call).
        """
        answers: dict[int, Any] = {}
        while pending:
            made, outcome = self._first(pending)
            asked, actor, handle, call = pending.pop(made)
            try:
                answers[asked] = outcome()
                continue
            except RayActorError as error:
                if self._cut:
                    raise KeyboardInterrupt from error
                if actor in self._retired or _out_of_memory(error):
                    actor = self._retire(actor, error)
                elif (why := why_not_started(error)) is not None:
                    raise ActorStartError(f"client actor {actor} could not start: {why}{MEND}") from error
                elif (
                    self._actors[actor] is handle
                ):  # otherwise it was already replaced because of another call
                    self._replace(actor, error)
            except Exception as error:  # raised by the work itself, and perhaps wrapped by Ray
                if not _out_of_memory(error):
                    cause = getattr(error, "cause", None)
                    if isinstance(cause, RaffedError | OSError):  # OSError: the disk is full, for example
                        raise cause from error
                    raise
                actor = self._retire(actor, error)
            pending[self._call(actor, call)] = asked, actor, self._actors[actor], call
        return [answers[asked] for asked in sorted(answers)]

    def _left(self) -> list[int]:
        """Return the actors that still work."""
        return [actor for actor in range(len(self._actors)) if actor not in self._retired]

    def _retire(self, actor: int, error: Exception) -> int:
        """Give up an actor that ran out of memory, and return the actor that takes over its work."""
        if actor not in self._retired:
            self._retired.add(actor)
            ray.kill(self._actors[actor], no_restart=True)
            left = len(self._left())
            advice = (
                "fewer actors (--actors), a smaller batch, or precision bf16 on a GPU; `raffed resume` "
                "continues the run"
            )
            what = f"client actor {actor} ran out of memory"
            if self._plan.sticky or not left:
                why = "one actor a client cannot lend its client" if self._plan.sticky else "no actor is left"
                raise ActorsLostError(f"{what}, and {why}. {_first_line(error)} Use {advice}") from error
            same = f"its clients move to the other {left}, the result stays the same"
            log.warning("%s; %s. %s Next time: %s", what, same, _first_line(error), advice)
        return self._left()[0]

    def _call(self, actor: int, call: Call) -> Any:
        name, arguments = call
        if self._channels is not None and self._channels.reaches(actor):
            return self._channels.call(actor, name, arguments)
        given = [argument.reference if isinstance(argument, Shared) else argument for argument in arguments]
        return getattr(self._actors[actor], name).remote(*given)

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
        self._actors[actor] = self._start(self._setup_ref, self._plan, actor, self._vaults)


def _shared(broadcast: Broadcast) -> Shared:
    """Return an argument of which each node has one copy, which every actor reads in place."""
    return Shared(broadcast, broadcast.nbytes() <= INLINE_BYTES)


def _out_of_memory(error: Exception) -> bool:
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


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if "memory" in line.lower()]
    return lines[-1] if lines else type(error).__name__
