"""Client actors as a `Runtime`: one call per actor and round, one broadcast in the object store, lost actors replaced."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from raffed.core.boundary import Broadcast
from raffed.core.errors import ActorsLostError, RaffedError
from raffed.core.fold import Fold, Partial
from raffed.runtime.base import Job, Report, Tally
from raffed.runtime.host import chunks, total
from raffed.runtime.placement import Plan
from raffed.runtime.setup import Setup

INLINE_BYTES = 100_000  # below Ray's inline limit a plain argument is faster than the object store

Call = tuple[str, tuple[Any, ...]]
Start = Callable[[Any, Plan, int, Path], Any]
log = logging.getLogger(__name__)


class RayPool:
    """The actors of a run. Exact sums make the order of their answers irrelevant."""

    def __init__(self, setup: Setup, setup_ref: Any, plan: Plan, vaults: Path, actors: list[Any], start: Start) -> None:
        self._setup, self._setup_ref, self._plan, self._vaults = setup, setup_ref, plan, vaults
        self._actors, self._start = actors, start
        self._restarts = 0
        self._chunks = {part: chunks(setup, part) for part in ("test", "val")}

    def train(self, job: Job) -> tuple[Partial, list[Report]]:
        work = [self._setup.config.local.steps(len(self._setup.partition.train[c])) for c in job.participants]
        sent = _shared(job.broadcast)
        calls: dict[int, Call] = {}
        for actor, clients in enumerate(self._plan.shares(job.participants, work)):
            if clients:
                calls[actor] = "train", (sent, job.share(frozenset(clients)))
        fold = Fold()
        reports: dict[int, Report] = {}
        for partial, theirs in self._ask(calls).values():
            fold.merge(partial)
            reports.update({report.client: report for report in theirs})
        return fold.export(), [reports[client] for client in job.participants]

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Tally:
        count, numbers = len(self._actors), self._chunks[part]
        sent = _shared(broadcast)
        calls: dict[int, Call] = {
            actor: ("evaluate", (sent, numbers[actor::count])) for actor in range(min(count, len(numbers)))
        }
        tallies: dict[int, Tally] = {}
        for answer in self._ask(calls).values():
            tallies.update(answer)
        return total(tallies)

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        calls: dict[int, Call] = {
            actor: ("digests", ({c: versions[c] for c in home if c in versions},))
            for actor, home in enumerate(self._plan.homes)
        }
        return {client: text for answer in self._ask(calls).values() for client, text in answer.items()}

    def placement(self) -> dict[str, object]:
        """Waits until every actor has loaded torch and its data."""
        places = self._ask(dict.fromkeys(range(len(self._actors)), ("ready", ()))).values()
        return {**self._plan.describe(), "driver_pid": os.getpid(), "restarts": self._restarts, "places": list(places)}

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors = []

    def _ask(self, calls: dict[int, Call]) -> dict[int, Any]:
        """Call actors and wait for all; an actor that is lost is replaced and asked again. Answers by actor number."""
        pending = {self._call(actor, call): actor for actor, call in calls.items()}
        answers: dict[int, Any] = {}
        while pending:
            (ref,), _ = ray.wait(list(pending), num_returns=1)
            actor = pending.pop(ref)
            try:
                answers[actor] = ray.get(ref)
            except RayActorError as error:
                self._replace(actor, error)
                pending[self._call(actor, calls[actor])] = actor
            except RayTaskError as error:
                if isinstance(error.cause, RaffedError):
                    raise error.cause from error
                raise
        return {actor: answers[actor] for actor in sorted(answers)}

    def _call(self, actor: int, call: Call) -> Any:
        name, arguments = call
        return getattr(self._actors[actor], name).remote(*arguments)

    def _replace(self, actor: int, error: RayActorError) -> None:
        self._restarts += 1
        limit = self._setup.config.runtime.max_restarts
        if self._restarts > limit:
            raise ActorsLostError(
                f"client actors died {self._restarts} times, more than runtime.max_restarts = {limit}; the last: actor {actor}. "
                f"{str(error).splitlines()[0]} If memory ran out, use fewer actors; `raffed resume` continues the run"
            ) from error
        log.warning("client actor %d was lost and is replaced (%d of %d)", actor, self._restarts, limit)
        self._actors[actor] = self._start(self._setup_ref, self._plan, actor, self._vaults)


def _shared(broadcast: Broadcast) -> Any:
    """The broadcast, in the object store if it is large: one copy a node, read in place by every actor."""
    return ray.put(broadcast) if broadcast.nbytes() > INLINE_BYTES else broadcast
