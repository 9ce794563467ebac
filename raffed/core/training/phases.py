"""What the clients of a round train: openings, objectives, batches, streams, handed to an executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.aggregation.exact_sums import plain_sum
from raffed.core.context import Forward
from raffed.core.ingredients import LocalSolver, Opening, Personal
from raffed.core.method import Method
from raffed.core.params import Record, State
from raffed.core.parts import Budget, Pass
from raffed.core.seeds import Purpose
from raffed.core.training.objective import (
    FirstStep,
    shared_task,
    term_streams,
    trainable,
)
from raffed.core.training.session import TrainingSession, batched, drawn_epochs, private_rates, solver_for
from raffed.core.training.sgd import batch_stream, ended
from raffed.core.training.task import ClientTask, TrainingPhase, Views
from raffed.core.visit import Visit

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
