"""Who trains in a round and from which of the server's models, also by the virtual clock."""

from __future__ import annotations

import functools
import heapq
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from raffed.config.sections import Clock
from raffed.core import seeds
from raffed.core.aggregation.uploads import PartialSum, UploadAccumulator
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import Broadcast, ServerState
from raffed.core.server import Mean
from raffed.core.training.session import batched, completed_steps, drawn_epochs
from raffed.federation.faults import attack_rows
from raffed.federation.selection import Losses, needs_losses
from raffed.results.metric import Row
from raffed.results.metrics import BROADCAST_ACCURACY, STALENESS, TRAINING_ACCURACY, VIRTUAL_SECONDS
from raffed.runs.integrity import EarlierRounds
from raffed.runs.participation import RoundParticipants, RoundPlan, drawn_clients, no_losses
from raffed.runtime.api import Asked, Report, RoundOrder
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.placement import make_stacks
from raffed.runtime.setup import Setup
from raffed.runtime.setup_model import make_network

# Events on the virtual clock of a run (config/sections.py): who is done when, and from which model it began.
#
# They depend on the configuration and the split alone, never on a result. So they are the same for any
# placement, and can be computed again after any stop.


@dataclass(frozen=True)
class Arrival:
    """An upload that is part of a step of the server. `start` is the number of steps done when it began."""

    client: int
    start: int


@dataclass(frozen=True)
class ServerStep:
    """A step of the server.

    Attributes:
        time: Virtual seconds since the beginning.
        arrivals: The uploads that it uses, in the order of the clients.
        needed: The numbers of the models from which clients have begun whose uploads come later.
    """

    time: float
    arrivals: tuple[Arrival, ...]
    needed: tuple[int, ...] = ()


class ClientSpeeds:
    """How long a training of each client takes."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self._clock = setup, setup.config.clock
        clients = setup.partition.num_clients
        self._factors = self._clock.traced(clients) if self._clock.speeds == "trace" else []

    def seconds(self, client: int, start: int, completed: float = 1.0) -> float:
        """Return the virtual seconds of a training.

        Args:
            client: The client.
            start: Number of the model with which it begins.
            completed: Fraction of its steps that it makes.
        """
        clock = self._clock
        steps = self._steps(client, start, completed) if clock.work == "step" else 1
        return clock.seconds * steps * self._factor(client) * self._jitter(client, start)

    def _steps(self, client: int, start: int, completed: float) -> int:
        """Return the steps of shared training, as the client makes them (core/training/phases.py)."""
        config, method, n = self.setup.config, self.setup.method, self.setup.data.sizes_at(start)[client]
        steps = []
        for pass_ in method.passes:
            local = batched(config.local, pass_, n, not pass_.keep_singleton_batch and self._normalises)
            epochs = drawn_epochs(config.local, config.seed, pass_, start, client)
            steps.append(completed_steps(local.steps(n, epochs), completed))
        if method.solver is not None:  # it has one pass, and a step for each of its mini-batches
            return method.solver.iterations(steps[0]) * method.solver.batches()
        return sum(steps)

    @functools.cached_property
    def _normalises(self) -> bool:
        """Whether the network has BatchNorm. It is built for a method that asks for it only."""
        return make_network(self.setup.network, self.setup.data).normalises

    def _factor(self, client: int) -> float:
        if self._clock.speeds == "lognormal":
            z = seeds.rng(self.setup.config.seed, "clock", client=client).standard_normal()
            return math.exp(self._clock.spread * float(z))
        return self._factors[client] if self._factors else 1.0

    def _jitter(self, client: int, start: int) -> float:
        if not self._clock.jitter:
            return 1.0
        z = seeds.rng(self.setup.config.seed, "clock", start, client, 1).standard_normal()
        return math.exp(self._clock.jitter * float(z))


@dataclass
class _State:
    """What is going on: clients that train as (end, client, start), and uploads that wait."""

    time: float = 0.0
    training: list[tuple[float, int, int]] = field(default_factory=list)
    waiting: list[Arrival] = field(default_factory=list)
    fills: int = 0  # how often clients began with the present model


class Timeline:
    """The steps of the server of a run, in order.

    While the server does not wait, as many clients train at a time as take part in a round. Whenever one
    finishes, another one begins with the present model. It is drawn among those that neither train nor have
    an upload that waits. All that finish at one moment are received first, in the order of the clients, then
    the server makes its steps, and then clients begin. So a client begins at most once with one model.

    While it waits, each round has the settings under which it was executed. Without a clock it takes no time.

    Args:
        setup: The run.
        earlier: The configurations of its first rounds, if it was extended or forked.
    """

    def __init__(self, setup: Setup, earlier: EarlierRounds | None = None) -> None:
        self._data, self._clock = setup.data, setup.config.clock
        self._setup, self._earlier = setup, earlier or EarlierRounds()
        self._speeds = ClientSpeeds(setup)
        self._at_once = setup.config.federation.participants(len(setup.data.trainable))
        self._steps: list[ServerStep] = []
        self._state = _State()

    def step(self, number: int) -> ServerStep:
        """Return a step of the server, counted from 0."""
        while len(self._steps) <= number:
            if self._clock.asynchronous:
                self._next_moment()
            else:
                self._steps.append(self._round(len(self._steps)))
        return self._steps[number]

    def needed(self, done: int) -> tuple[int, ...]:
        """Return the numbers of earlier models that are still needed after so many steps."""
        return self.step(done - 1).needed if done else ()

    def _round(self, number: int) -> ServerStep:
        before = self._steps[-1].time if self._steps else 0.0
        config = self._earlier.config_at(number, self._setup.config)
        if config != self._speeds.setup.config:
            self._speeds = ClientSpeeds(replace(self._setup, config=config))
        if needs_losses(config.federation):  # a checkpoint records who took part, and there is no clock
            return ServerStep(before, ())
        participants = RoundParticipants.of(self._speeds.setup.data, number)
        clients, faults = participants.trained, participants.faults
        timed = clients if config.clock.speeds else ()
        times = [self._speeds.seconds(c, number, faults[c].completed_fraction) for c in timed]
        return ServerStep(
            before + max(times, default=0.0), tuple(Arrival(client, number) for client in clients)
        )

    def _next_moment(self) -> None:
        """Receive the uploads of the next moment, and make the steps that they allow."""
        state = self._state
        if not state.training:
            self._begin()
        state.time = state.training[0][0]
        while state.training and state.training[0][0] == state.time:
            _, client, start = heapq.heappop(state.training)
            state.waiting.append(Arrival(client, start))
        size = self._buffer
        while len(state.waiting) >= size:
            arrivals, state.waiting = state.waiting[:size], state.waiting[size:]
            later = {start for _, _, start in state.training} | {arrival.start for arrival in state.waiting}
            ordered = tuple(sorted(arrivals, key=lambda arrival: arrival.client))
            self._steps.append(ServerStep(state.time, ordered, tuple(sorted(later))))
            state.fills = 0
        self._begin()

    @property
    def _buffer(self) -> int:
        if self._clock.server == "fedasync":
            return 1
        return self._clock.buffer or self._at_once

    def _begin(self) -> None:
        """Let clients begin with the present model until as many train as may."""
        state, number = self._state, len(self._steps)
        free = self._at_once - len(state.training)
        if free < 1:
            return
        busy = {client for _, client, _ in state.training} | {arrival.client for arrival in state.waiting}
        idle = [client for client in self._data.trainable if client not in busy]
        for client in self._chosen(idle, free, number):
            end = state.time + self._speeds.seconds(client, number)
            heapq.heappush(state.training, (end, client, number))
        state.fills += 1

    def _chosen(self, idle: Sequence[int], count: int, number: int) -> list[int]:
        """Return clients that begin. Those that a round of this number would draw come first."""
        drawn = set(drawn_clients(self._data, number)) if not self._state.fills else set()
        generator = seeds.rng(self._data.seed, "clock", number, 0, 2, self._state.fills)
        places = {client: place for place, client in enumerate(generator.permutation(list(idle)).tolist())}
        return sorted(sorted(idle, key=lambda client: (client not in drawn, places[client]))[:count])


Trained = tuple[PartialSum, list[Report]]


class RoundSchedule:
    """Plans the rounds of a run. If the server does not wait, it keeps the models that are still needed.

    Args:
        data: The clients and their samples.
        mean: The mean of the run's method.
        clock: The section `clock` of the run.
        timeline: The steps of the server on the virtual clock, or None without one.
        losses: Function from clients to the losses of the present model.
        past: Number → the server's state of that time, as a checkpoint holds them.
        cohort: Clients that are trained in one stack (`numerics.cohort`).
        masks: Whether uploads are masked.
    """

    def __init__(
        self,
        data: FederatedData,
        mean: Mean,
        clock: Clock,
        timeline: Timeline | None,
        losses: Losses,
        past: Mapping[int, ServerState],
        *,
        cohort: int,
        masks: bool,
    ) -> None:
        self._data, self._mean, self._losses = data, mean, losses
        self._cohort, self._masks, self._clock = cohort, masks, clock
        self._timeline, self._waits = timeline, not clock.asynchronous
        self.past: dict[int, ServerState] = dict(past)

    def plan(self, number: int, losses: bool = True) -> RoundPlan:
        """Return the plan of a round, counted from 0.

        Args:
            number: Number of the round.
            losses: Whether the losses of the present model may be asked for.
        """
        plan_of = functools.partial(
            RoundPlan.of, self._data, self._mean, number, cohort=self._cohort, masks=self._masks
        )
        if self._waits or self._timeline is None:
            return plan_of(losses=self._losses if losses else no_losses)
        arrived = {arrival.client: arrival.start for arrival in self._timeline.step(number).arrivals}
        plan = plan_of(clock=self._clock, arrived=arrived)
        groups = {
            start: tuple(client for client in arrived if arrived[client] == start) for start in plan.starts
        }
        stacks = [
            stack
            for start in sorted(groups)
            for stack in make_stacks(groups[start], plan.sizes, self._cohort)
        ]
        return replace(plan, stacks=tuple(stacks))

    def trained(self, number: int, data: FederatedData) -> list[tuple[tuple[int, ...], int]]:
        """Return (clients, number of the model from which they began) of a round that is done.

        Args:
            number: Number of the round.
            data: The clients, with the settings under which the round was executed.
        """
        if self._waits or self._timeline is None:
            return [(RoundParticipants.of(data, number).trained, number)]
        return [((arrival.client,), arrival.start) for arrival in self._timeline.step(number).arrivals]

    def order(self, server: ServerState, plan: RoundPlan, versions: Mapping[int, int]) -> RoundOrder:
        """Return the order for all participants of a round, with the server's present model."""
        clients = plan.participants.trained
        kept = tuple(versions.get(client, 0) for client in clients)
        measure = plan.measure or plan.surveyed
        return RoundOrder(
            server.broadcast(), clients, plan.weights, kept, measure, plan.stacks, plan.faults, plan.peers
        )

    def pieces(self, server: ServerState, plan: RoundPlan, whole: RoundOrder) -> list[RoundOrder]:
        """Return the same order in pieces, one for each model from which participants began."""
        if not plan.starts:
            return [whole] if whole.participants else []
        return [self._piece(server, plan, whole, start) for start in sorted(set(plan.starts))]

    def _piece(self, server: ServerState, plan: RoundPlan, whole: RoundOrder, start: int) -> RoundOrder:
        begun = server if start == plan.number else self.past[start]
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

    def further_rows(self, scoring: RoundInScoring, done: int) -> list[Row]:
        """Return the rows of a round about other scores, planned faults, attackers and the virtual clock.

        Args:
            scoring: The round.
            done: Number of rounds done.
        """
        rows, plan, faults = list[Row](), scoring.training.plan, self._data.faults
        for metric, part in ((BROADCAST_ACCURACY, "sent"), (TRAINING_ACCURACY, "train")):
            if part in scoring.asked:
                counts = scoring.asked[part]()
                rows.append(metric.row(done, counts.accuracy, n=counts.n))
        rows += plan.participants.rows(done) if faults.any else []
        data, trained = self._data, scoring.training.order.participants
        rows += attack_rows(faults, data.seed, data.trainable, done, trained, scoring.asked.get("attack"))
        return rows + self._clock_rows(plan)

    def _clock_rows(self, plan: RoundPlan) -> list[Row]:
        """Return the rows of a round about the virtual clock."""
        if self._timeline is None:
            return []
        done = plan.number + 1
        step = self._timeline.step(plan.number)
        rows = [VIRTUAL_SECONDS.row(done, step.time, n=len(step.arrivals))]
        if plan.starts:
            ages = [plan.number - start for start in plan.starts]
            rows.append(STALENESS.row(done, statistics.fmean(ages), n=len(ages)))
        return rows


def merged(asked: Sequence[Asked[Trained]], participants: Sequence[int]) -> Asked[Trained]:
    """Return a function that waits for all pieces of an order that were requested.

    Args:
        asked: The pieces.
        participants: The clients of the whole order.
    """

    def trained() -> Trained:
        accumulator, reports = UploadAccumulator(), dict[int, Report]()
        for partial, client_reports in (piece() for piece in asked):
            accumulator.merge(partial)
            reports.update({report.client: report for report in client_reports})
        return accumulator.export(), [reports[client] for client in participants]

    return trained


# The two phases of a round in the round loop: its training was requested, or its scores were.


@dataclass(frozen=True)
class RoundInTraining:
    """A round whose training has been requested. `began` is time.perf_counter() at that moment.

    `pieces` are the parts of the order with one model of the server each.
    """

    plan: RoundPlan
    order: RoundOrder
    began: float
    asked: Asked[tuple[PartialSum, list[Report]]]
    pieces: list[RoundOrder]


@dataclass(frozen=True)
class RoundInScoring:
    """A round whose uploads have been aggregated and whose scores have been requested.

    `whole` is the global model, or None if there is none. `asked` holds its scores by the parts of the scored
    samples ("test", "val", "attack", "train"), and as "sent" those of the broadcast weights, where a server's
    rule scores other weights. What is not scored is not there.
    """

    training: RoundInTraining
    reports: list[Report]
    whole: Broadcast | None
    asked: Mapping[str, Asked[ScoreCounts]]
