"""What the clients of a round train: one client's visit to a round, and the phases handed to an executor.

A `Visit` is one client in one round: what it and its ingredients know, and how far its training has come.
Each phase gets its opening, its objective, its batches and its streams of random numbers here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.aggregation.exact_sums import plain_sum
from raffed.core.context import NOTHING, Context, Forward
from raffed.core.ingredients import LocalSolver, Opening, Personal
from raffed.core.method import Method
from raffed.core.params import Params, Record, State
from raffed.core.parts import Budget, Pass
from raffed.core.seeds import Purpose
from raffed.core.training.objective import (
    FirstStep,
    shared_task,
    term_streams,
    trainable,
)
from raffed.core.training.session import (
    ClientClock,
    Participant,
    TrainingSession,
    batched,
    drawn_epochs,
    private_rates,
    solver_for,
)
from raffed.core.training.sgd import batch_stream, ended
from raffed.core.training.task import ClientTask, OptimizerMemory, Trained, TrainingPhase, Views, add_notes
from raffed.errors import NumericsError

OPTIMIZER = "optimizer"  # the slot of `Method.optimizer`


@dataclass(kw_only=True)
class Visit:
    """One client in one round, from the download to the upload.

    The stages of a round (core/round.py) change it in place, one after the other. The contexts, models and
    memories in it are never changed, only replaced.

    Attributes:
        participant: The client, with its data and its client state.
        clock: Its numbers of steps and learning rates in this round.
        downloaded: The model as downloaded, joined with the client's own layers.
        k: What the client knows.
        views: What each of its ingredients knows, by slot.
        loss: Mean of the objective over the samples seen in shared training.
        idle: Names of the user's own terms whose value had no gradient.
        streams: Random streams of the terms that draw, by slot. They continue from pass to pass.
        companion: Parameters that are trained together with the network, or None.
        noted: Sums of what terms noted (`Term.note`), by slot.
    """

    participant: Participant
    clock: ClientClock
    downloaded: State
    k: Context
    views: Views
    loss: float = 0.0
    idle: tuple[str, ...] = ()
    streams: dict[str, torch.Generator] = field(default_factory=dict)
    companion: Params | None = None
    noted: dict[str, Tensor] = field(default_factory=dict)

    def tell(self, **facts: Any) -> None:
        """Replace fields of what the client and all its ingredients know."""
        self.k = self.k.replace(**facts)
        self.views = {slot: view.replace(**facts) for slot, view in self.views.items()}

    def tell_one(self, slot: str, **facts: Any) -> None:
        """Replace fields of what one ingredient knows."""
        self.views = {**self.views, slot: self.views[slot].replace(**facts)}

    def phase(
        self,
        session: TrainingSession,
        start: State,
        batches: list[Tensor],
        number: int,
        *,
        views: Views | None = None,
        companion: Params | None = None,
        drawn: Mapping[str, torch.Generator] | None = None,
        rates: list[float] | None = None,
        optimizer: str = "",
    ) -> TrainingPhase:
        """Return one phase of the client's training. Dropout and augmentation have their own derived streams.

        Args:
            session: How clients train.
            start: The model with which it begins.
            batches: Indices of the samples in each batch.
            number: Number of the phase, from which its random streams are derived.
            views: What the ingredients know that take part, or None for all of them. The state of the
                optimiser is left out, because no objective reads it.
            companion: The companion, or None.
            drawn: Random streams of the terms that draw.
            rates: Learning rate of each step, or None for that of the solver.
            optimizer: Name under which the state of the optimiser is kept from round to round.
        """
        key, net = (self.k.round, self.k.client, number), session.net
        augments = session.augment is not None
        known = self.views if views is None else views
        kept = self.views[OPTIMIZER].mine if OPTIMIZER in self.views else None
        return TrainingPhase(
            start,
            batches,
            self.participant.data,
            {slot: view for slot, view in known.items() if slot != OPTIMIZER},
            companion,
            augment=seeds.generator(session.seed, "augment", *key) if augments else None,
            dropout=seeds.generator_on(net.device, session.seed, "dropout", *key)
            if net.has_dropout
            else None,
            drawn=drawn or {},
            rates=rates,
            optimizer=kept.phases.get(optimizer) if isinstance(kept, OptimizerMemory) else None,
        )

    def passed(self, phase: TrainingPhase, end: Trained) -> None:
        """Add a pass of shared training that has ended. Until `trained`, `loss` is a sum over the steps."""
        k, steps = self.k, self.k.steps + end.steps
        lr_sum = steps * k.lr if phase.rates is None else k.lr_sum + plain_sum(phase.rates)
        self.k = k.replace(state=end.state, steps=steps, lr_sum=lr_sum)
        self.loss += end.loss * end.steps
        self.companion = None if self.companion is None else end.own
        add_notes(self.noted, end.noted)

    def trained(self, carried: Record | None = None) -> None:
        """Tell the ingredients what has come of shared training.

        Args:
            carried: What the method's local solver ended with.
        """
        self.tell(state=self.k.state, steps=self.k.steps, lr_sum=self.k.lr_sum)
        for slot, value in self.noted.items():
            self.tell_one(slot, noted=value)
        if "personal" in self.views:
            companion = NOTHING if self.companion is None else self.companion
            self.tell_one("personal", own=companion, carried=carried)

    def keep_optimizer(self, phase: str, end: Trained) -> None:
        """Keep the state of the optimiser with which a phase has ended, if the run asks for it."""
        if OPTIMIZER in self.views and end.optimizer is not None:
            phases = {**self.views[OPTIMIZER].mine.phases, phase: end.optimizer}
            self.tell_one(OPTIMIZER, mine=OptimizerMemory(phases))

    def check_loss(self, method: str, loss: float) -> None:
        """Refuse a training loss that is not finite.

        Raises:
            NumericsError: The loss is not finite. The message names the client and the round.
        """
        if not math.isfinite(loss):
            raise NumericsError(
                f"{method}: the training loss of client {self.k.client} in round {self.k.round + 1} is "
                f"{loss}; the rounds before are kept: try a smaller lr, or clip_norm"
            )


# The opening of a round: what clients make of the downloaded model before their passes.


SLOT = "opening"


def make_opening(m: Method, visits: Sequence[Visit], session: TrainingSession) -> None:
    """Make the opening of a method that has one. All ingredients find the model after it in `k.start`."""
    opening = m.opening
    assert opening is not None

    def objective(f: Forward, views: Views) -> Tensor:
        loss: Tensor = trainable(opening, "loss", opening.loss(f, views[SLOT]))
        return loss

    solver = solver_for(session.local, Pass(), visits[0].views[SLOT].lr)
    trained: list[tuple[Visit, TrainingPhase]] = []
    for visit in visits:
        k = visit.views[SLOT]
        if epochs := opening.epochs(k):
            trained.append((visit, _phase(m, opening, epochs, visit, session)))
        else:
            carried = opening.begin(k)
            _tell(visit, ended(opening, carried, k.start), carried)
    if not trained:
        return
    task = ClientTask(objective, solver, rule=opening, slot=SLOT)
    phases = [phase for _, phase in trained]
    ends = session.execute(session.net, task, phases, session.augment)
    for (visit, _), end in zip(trained, ends, strict=True):
        visit.check_loss(m.name, end.loss)
        _tell(visit, end.state, end.carried)


def _tell(visit: Visit, start: State, carried: Record | None) -> None:
    """Tell a client's ingredients what its opening ended with."""
    visit.tell(start=start, state=start)
    visit.tell_one(SLOT, carried=carried)


def _phase(
    m: Method, opening: Opening, epochs: float, visit: Visit, session: TrainingSession
) -> TrainingPhase:
    """Return a client's training phase. Its samples and batches come from a stream of its own."""
    k, n = visit.views[SLOT], visit.participant.data.n
    stream = seeds.generator(session.seed, "opening", k.round, k.client)
    chosen = opening.samples(n, stream)
    local = batched(session.local, Pass(keep_singleton_batch=False), len(chosen), session.net.normalises)
    count = opening.iterations(local.steps(len(chosen), epochs)) * opening.batches()
    batches = [chosen[index] for index in batch_stream(len(chosen), count, local, stream)]
    number = len(m.passes) + 1  # private training has the number before it
    return visit.phase(session, k.start, batches, number, views={SLOT: k})


PRIVATE = "private"  # the phase of private training; passes are "pass-0", "pass-1", …


def train(m: Method, visits: Sequence[Visit], session: TrainingSession) -> None:
    """Train the shared model of all clients: w_i ← w_i − η · correction(∇ objective).

    Every pass of shared training is made, or all steps of a method's own solver. Losses and steps are taken
    over all passes.
    """
    if m.solver is not None:
        _train_by_rule(m, m.solver, visits, session)
        return
    gradients, lr = dict[str, bool](), visits[0].k.lr
    tasks = [shared_task(m, pass_, solver_for(session.local, pass_, lr, m.needs_sgd)) for pass_ in m.passes]
    drawing = {slot: term for task in tasks for slot, term in task.draws.items()}
    for visit in visits:
        visit.streams = term_streams(drawing, visit.views)
        if m.personal is not None:
            visit.companion = m.personal.companion(visit.views["personal"])
    scaled = any(pass_.lr_scale != 1.0 for pass_ in m.passes)
    for number, (pass_, task) in enumerate(zip(m.passes, tasks, strict=True)):
        phases = [_pass(visit, pass_, number, session, scaled) for visit in visits]
        ended = session.execute(session.net, task, phases, session.augment)
        _note_gradients(gradients, task)
        for visit, phase, end in zip(visits, phases, ended, strict=True):
            visit.check_loss(m.name, end.loss)
            visit.passed(phase, end)
            visit.keep_optimizer(f"pass-{number}", end)
    for visit in visits:
        visit.loss, visit.idle = visit.loss / max(visit.k.steps, 1), _idle(gradients)
        visit.trained()


def _pass(visit: Visit, pass_: Pass, number: int, session: TrainingSession, scaled: bool) -> TrainingPhase:
    """Return a client's training phase of one pass of shared training.

    If the rate of any pass is `scaled`, each step has its own, so that the sum of the rates is known.
    """
    local = _cut(visit, pass_, session)
    steps = visit.participant.steps(local, _epochs(visit, pass_, session))
    rates = visit.clock.rates(number, steps)
    if scaled:
        rates = [pass_.lr_scale * rate for rate in rates or [visit.k.lr] * steps]
    return visit.phase(
        session,
        visit.k.state,
        _batches(visit, local, steps, session, "batches", number),
        number,
        companion=visit.companion,
        drawn=visit.streams,
        rates=rates,
        optimizer=f"pass-{number}",
    )


def _train_by_rule(m: Method, solver: LocalSolver, visits: Sequence[Visit], session: TrainingSession) -> None:
    """Train by the method's own local solver, for as many of its steps as it says."""
    pass_, per = m.passes[0], solver.batches()
    task = shared_task(m, pass_, solver_for(session.local, pass_, visits[0].k.lr))
    phases = []
    for visit in visits:
        local = _cut(visit, pass_, session)
        steps = solver.iterations(visit.participant.steps(local, _epochs(visit, pass_, session)))
        batches = _batches(visit, local, steps * per, session, "batches", 0)
        drawn, rates = term_streams(task.draws, visit.views), visit.clock.rates(0, steps)
        phases.append(visit.phase(session, visit.k.start, batches, 0, drawn=drawn, rates=rates))
    ended = session.execute(session.net, task, phases, session.augment)
    gradients: dict[str, bool] = {}
    _note_gradients(gradients, task)
    for visit, phase, end in zip(visits, phases, ended, strict=True):
        visit.check_loss(m.name, end.loss)
        lr_sum = end.steps // per * visit.k.lr if phase.rates is None else plain_sum(phase.rates)
        visit.k = visit.k.replace(state=end.state, steps=end.steps, lr_sum=lr_sum)
        visit.loss, visit.idle = end.loss, _idle(gradients)
        visit.trained(end.carried)


def _cut(visit: Visit, pass_: Pass, session: TrainingSession) -> Local:
    """Return the settings by which a client cuts its samples into the batches of a pass."""
    return batched(session.local, pass_, visit.participant.data.n, session.net.normalises)


def _epochs(visit: Visit, pass_: Pass, session: TrainingSession) -> float | None:
    return drawn_epochs(session.local, session.seed, pass_, visit.k.round, visit.k.client)


def _batches(
    visit: Visit, local: Local, steps: int, session: TrainingSession, purpose: Purpose, *number: int
) -> list[Tensor]:
    """Return a client's batches of a phase, from a random stream of its own."""
    stream = seeds.generator(session.seed, purpose, visit.k.round, visit.k.client, *number)
    return batch_stream(visit.participant.data.n, steps, local, stream)


def _note_gradients(gradients: dict[str, bool], task: ClientTask) -> None:
    """Note which terms of the user's own had a gradient in a pass, and which had none."""
    if isinstance(task.objective, FirstStep):
        for name, had in task.objective.gradients.items():
            gradients[name] = gradients.get(name, False) or had


def _idle(gradients: dict[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, had in gradients.items() if not had)


def train_private(m: Method, visits: Sequence[Visit], session: TrainingSession) -> None:
    """Train the model of the personal ingredient, from its own start and with its own random stream."""
    assert m.personal is not None
    lr, personal = visits[0].views["personal"].lr, m.personal
    # Clients whose private training differs only in its number of steps are trained together
    alike: dict[Budget, list[tuple[Visit, TrainingPhase]]] = {}
    for visit in visits:
        view = visit.views["personal"]
        start, budget = personal.start(view), personal.budget(view)
        if budget is not None and (budget.steps or budget.epochs):
            phase = _private_phase(m, visit, start, budget, session)
            alike.setdefault(replace(budget, steps=0), []).append((visit, phase))
        visit.tell_one("personal", private=start)
    for budget, members in alike.items():
        task = _private_task(m, personal, budget, session, lr)
        phases = [phase for _, phase in members]
        ended = session.execute(session.net, task, phases, session.augment)
        for (visit, _), end in zip(members, ended, strict=True):
            visit.check_loss(m.name, end.loss)
            visit.tell_one("personal", private=end.state)
            visit.keep_optimizer(PRIVATE, end)


def _private_phase(
    m: Method, visit: Visit, start: State, budget: Budget, session: TrainingSession
) -> TrainingPhase:
    """Return a client's training phase of private training."""
    n, local = visit.participant.data.n, session.local
    steps = budget.steps if budget.epochs is None else local.steps(n, budget.epochs)
    if budget.shared_batches:
        number, batches = 0, _batches(visit, local, steps, session, "batches", 0)
    else:
        number, batches = len(m.passes), _batches(visit, local, steps, session, "private")
    return visit.phase(
        session,
        start,
        batches,
        number,
        views={"personal": visit.views["personal"]},
        rates=private_rates(session, visit.k.round, n, steps, budget),
        optimizer=PRIVATE,
    )


def _private_task(
    m: Method, personal: Personal, budget: Budget, session: TrainingSession, lr: float
) -> ClientTask:
    """Return what the private training of all clients with this budget has in common."""
    override = Pass(momentum=budget.momentum, weight_decay=budget.weight_decay)
    solver = solver_for(session.local, override, lr * budget.lr_scale if budget.lr is None else budget.lr)
    plain = type(personal).private_loss is Personal.private_loss and not solver.label_smoothing

    def objective(f: Forward, views: Views) -> Tensor:
        loss: Tensor = trainable(personal, "private_loss", personal.private_loss(f, views["personal"]))
        return loss

    return ClientTask(
        objective,
        solver,
        budget.part,
        cross_entropy_only=plain and m.criterion is None,
        repeats=m.steps_repeat,
    )
