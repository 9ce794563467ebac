"""Who trains in a round, and from which of the server's models."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from raffed.core.aggregation.exact_sums import PartialSum, UploadAccumulator
from raffed.core.messages import ServerState
from raffed.errors import UsageError
from raffed.federation.selection import Losses
from raffed.results.metrics import STALENESS, VIRTUAL_SECONDS
from raffed.results.row import Row
from raffed.runs.participation import RoundParticipants, RoundPlan, no_losses
from raffed.runs.virtual_clock import Timeline
from raffed.runtime.api import Asked, Backend, RoundOrder
from raffed.runtime.placement import make_stacks
from raffed.runtime.reports import Report
from raffed.runtime.setup import Setup

Trained = tuple[PartialSum, list[Report]]


class RoundSchedule:
    """Plans the rounds of a run. If the server does not wait, it keeps the models that are still needed.

    Args:
        setup: The run.
        losses: Function from clients to the losses of the present model.
        past: Number → the server's state of that time, as a checkpoint holds them.
    """

    def __init__(self, setup: Setup, losses: Losses, past: Mapping[int, ServerState]) -> None:
        self._setup, self._losses = setup, losses
        self._timeline = Timeline(setup) if setup.config.clock.speeds else None
        self._waits = not setup.config.clock.asynchronous
        self.past: dict[int, ServerState] = dict(past)

    def plan(self, number: int, losses: bool = True) -> RoundPlan:
        """Return the plan of a round, counted from 0.

        Args:
            number: Number of the round.
            losses: Whether the losses of the present model may be asked for.
        """
        setup = self._setup
        if self._waits or self._timeline is None:
            return RoundPlan.of(setup, setup.method, number, self._losses if losses else no_losses)
        arrived = {one.client: one.start for one in self._timeline.step(number).arrivals}
        plan = RoundPlan.of(setup, setup.method, number, arrived=arrived)
        groups = {
            start: tuple(client for client in arrived if arrived[client] == start) for start in plan.starts
        }
        stacks = [
            stack
            for start in sorted(groups)
            for stack in make_stacks(groups[start], plan.sizes, setup.config.numerics.cohort)
        ]
        return replace(plan, stacks=tuple(stacks))

    def trained(self, number: int, setup: Setup) -> list[tuple[tuple[int, ...], int]]:
        """Return (clients, number of the model from which they began) of a round that is done.

        Args:
            number: Number of the round.
            setup: The setup with which it was executed.
        """
        if self._waits or self._timeline is None:
            return [(RoundParticipants.of(setup, number).trained, number)]
        return [((one.client,), one.start) for one in self._timeline.step(number).arrivals]

    def order(self, server: ServerState, plan: RoundPlan, versions: Mapping[int, int]) -> RoundOrder:
        """Return the order for all participants of a round, with the server's present model."""
        clients = plan.participants.trained
        kept = tuple(versions.get(client, 0) for client in clients)
        measure = plan.measure or plan.surveyed
        return RoundOrder(
            server.broadcast(), clients, plan.weights, kept, measure, plan.stacks, plan.faults, plan.peers
        )

    def pieces(self, server: ServerState, plan: RoundPlan, whole: RoundOrder) -> list[RoundOrder]:
        """Return the same order in pieces, one for each model from which participants began.

        Raises:
            UsageError: Such a model is not known, because the run was forked with another clock.
        """
        if not plan.starts:
            return [whole] if whole.participants else []
        return [self._piece(server, plan, whole, start) for start in sorted(set(plan.starts))]

    def _piece(self, server: ServerState, plan: RoundPlan, whole: RoundOrder, start: int) -> RoundOrder:
        begun = server if start == plan.number else self.past.get(start)
        if begun is None:
            raise UsageError(
                f"clock: clients began with the model after {start} rounds, which the checkpoint does not "
                "hold; a run can be forked only with the clock that it had"
            )
        rows = zip(whole.participants, whole.weights, whole.versions, plan.starts, strict=True)
        clients, weights, versions, _ = zip(*(row for row in rows if row[3] == start), strict=True)
        mine = set(clients)
        return RoundOrder(
            begun.broadcast(),
            clients,
            weights,
            versions,
            whole.measure,
            tuple(stack for stack in plan.stacks if mine.issuperset(stack)),
        )

    def advance(self, before: ServerState, after: ServerState) -> None:
        """Keep the model before a round if clients that began with it are not done, and drop what is done."""
        if self._waits or self._timeline is None:
            return
        known = {**self.past, before.round: before}
        self.past = {
            number: known[number] for number in self._timeline.needed(after.round) if number in known
        }

    def rows(self, plan: RoundPlan) -> list[Row]:
        """Return the rows of a round about the virtual clock."""
        if self._timeline is None:
            return []
        done = plan.number + 1
        step = self._timeline.step(plan.number)
        made = [VIRTUAL_SECONDS.row(done, step.time, n=len(step.arrivals))]
        if plan.starts:
            ages = [plan.number - start for start in plan.starts]
            made.append(STALENESS.row(done, statistics.fmean(ages), n=len(ages)))
        return made


def asked_of(backend: Backend, whole: RoundOrder, pieces: list[RoundOrder]) -> Callable[[], Trained]:
    """Request the training of all pieces of an order, and return a function that waits for it.

    Args:
        backend: The backend.
        whole: The whole order.
        pieces: Its pieces.
    """
    asked: list[Asked[Trained]] = [backend.train(piece) for piece in pieces]
    if len(asked) == 1:
        return asked[0]

    def trained() -> Trained:
        accumulator, reports = UploadAccumulator(), dict[int, Report]()
        for partial, theirs in (one() for one in asked):
            accumulator.merge(partial)
            reports.update({report.client: report for report in theirs})
        return accumulator.export(), [reports[client] for client in whole.participants]

    return trained


__all__ = ["RoundSchedule", "asked_of"]
