"""What the clients of a round train: their objectives, batches and random streams, handed to an executor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.aggregation.plain_sum import plain_sum
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Personal
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Budget, Pass
from raffed.core.training.clock import ClientClock, batched, private_rates
from raffed.core.training.drawn_epochs import drawn_epochs
from raffed.core.training.first_step import FirstStep, trainable
from raffed.core.training.kept_optimizer import PRIVATE, begun, keep, without_optimizer
from raffed.core.training.objective import shared_task, steps_repeat, term_streams, terms_that_draw
from raffed.core.training.optimizer_state import OptimizerState
from raffed.core.training.session import Participant, TrainingSession, solver_for
from raffed.core.training.sgd import Trained, batch_stream
from raffed.core.training.task import ClientTask, TrainingPhase, Views, add_notes
from raffed.errors import NumericsError


def train_shared(
    m: Method,
    views: list[Views],
    contexts: list[Context],
    participants: Sequence[Participant],
    session: TrainingSession,
) -> list[Trained]:
    """Train every pass of shared training for all clients. Losses and steps are taken over all passes."""
    round, clocks = (
        contexts[0].round,
        [ClientClock.of(m, session, contexts[0].round, one) for one in participants],
    )
    states = [k.start for k in contexts]
    losses, steps, lr_sums = [0.0] * len(participants), [0] * len(participants), [0.0] * len(participants)
    kept = [dict[str, OptimizerState]() for _ in participants]
    draws = terms_that_draw(m)
    drawn = [term_streams(draws, own) for own in views]  # the streams continue from pass to pass
    noted: list[dict[str, Tensor]] = [{} for _ in participants]
    companions = [_companion(m, own) for own in views]
    gradients: dict[str, bool] = {}
    for number, one in enumerate(m.passes):
        task = shared_task(m, one, solver_for(session.local, one, contexts[0].lr, m.needs_sgd))
        phases = []
        for i, participant in enumerate(participants):
            mine = batched(session.local, one, participant.data.n, session.net.normalises)
            count = participant.steps(
                mine, drawn_epochs(session.local, session.seed, one, round, participant.client)
            )
            batches = _batches(replace(session, local=mine), round, participant, count, number)
            phase = phase_of(
                session, round, participant, states[i], batches, views[i], number, drawn[i], companions[i]
            )
            rates = clocks[i].rates(number, count)
            phases.append(replace(phase, rates=rates, optimizer=begun(views[i], f"pass-{number}")))
        done = session.execute(session.net, task, phases, session.augment)
        _note_gradients(gradients, task)
        for i, end in enumerate(done):
            check_loss(m, contexts[i], end.loss)
            losses[i] += end.loss * end.steps
            steps[i] += end.steps
            lr_sums[i] += plain_sum(phases[i].rates or ())
            if end.optimizer is not None:
                kept[i][f"pass-{number}"] = end.optimizer
            add_notes(noted[i], end.noted)
        states = [end.state for end in done]
        companions = [end.own if own is not None else None for own, end in zip(companions, done, strict=True)]
    keep(views, kept)
    by_step = clocks[0].changes
    rows = zip(states, losses, steps, done, noted, lr_sums, strict=True)
    idle = _idle(gradients)
    return [
        Trained(
            state, loss / max(n, 1), n, end.own, noted=sums, lr_sum=lr_sum if by_step else None, idle=idle
        )
        for state, loss, n, end, sums, lr_sum in rows
    ]


def train_by_rule(
    m: Method,
    views: list[Views],
    contexts: list[Context],
    participants: Sequence[Participant],
    session: TrainingSession,
) -> list[Trained]:
    """Train by the method's own local solver, for as many of its steps as it says."""
    assert m.solver is not None
    round, per = contexts[0].round, m.solver.batches()
    task = shared_task(m, m.passes[0], solver_for(session.local, m.passes[0], contexts[0].lr))
    phases = []
    for k, participant, own in zip(contexts, participants, views, strict=True):
        mine = batched(session.local, m.passes[0], participant.data.n, session.net.normalises)
        epochs = drawn_epochs(session.local, session.seed, m.passes[0], round, participant.client)
        count = m.solver.iterations(participant.steps(mine, epochs))
        batches = _batches(replace(session, local=mine), round, participant, count * per, 0)
        phase = phase_of(session, round, participant, k.start, batches, own, 0, term_streams(task.draws, own))
        phases.append(replace(phase, rates=ClientClock.of(m, session, round, participant).rates(0, count)))
    done = session.execute(session.net, task, phases, session.augment)
    for k, end in zip(contexts, done, strict=True):
        check_loss(m, k, end.loss)
    sums = [
        len(one.batches) // per * k.lr if one.rates is None else plain_sum(one.rates)
        for k, one in zip(contexts, phases, strict=True)
    ]
    gradients: dict[str, bool] = {}
    _note_gradients(gradients, task)
    idle = _idle(gradients)
    return [replace(end, lr_sum=lr_sum, idle=idle) for end, lr_sum in zip(done, sums, strict=True)]


def _note_gradients(gradients: dict[str, bool], task: ClientTask) -> None:
    """Note which terms of the user's own had a gradient in a pass, and which had none."""
    if isinstance(task.objective, FirstStep):
        for name, had in task.objective.gradients.items():
            gradients[name] = gradients.get(name, False) or had


def _idle(gradients: dict[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, had in gradients.items() if not had)


def _batches(
    session: TrainingSession, round: int, participant: Participant, steps: int, number: int
) -> list[Tensor]:
    """Return a client's batches of one shared pass."""
    return batch_stream(
        participant.data.n,
        steps,
        session.local,
        seeds.generator(session.seed, "batches", round, participant.client, number),
    )


def _companion(m: Method, views: Views) -> Params | None:
    return m.personal.companion(views["personal"]) if m.personal is not None else None


def train_private(
    m: Method, views: list[Views], participants: Sequence[Participant], session: TrainingSession
) -> list[Views]:
    """Train the personal ingredient's own model, from its own start and with its own random stream."""
    if m.personal is None:
        return views
    personal = m.personal
    own = [mine["personal"] for mine in views]
    starts = [personal.start(view) for view in own]
    ends = list(starts)
    kept = [dict[str, OptimizerState]() for _ in participants]
    for budget, who in _alike([personal.budget(view) for view in own]):
        task = _private_task(m, personal, budget, session, own[0].lr)
        phases = []
        for i, steps in who:
            count = (
                steps if budget.epochs is None else session.local.steps(participants[i].data.n, budget.epochs)
            )
            batches = _private_batches(session, own[i].round, participants[i], count, budget.shared_batches)
            number = 0 if budget.shared_batches else len(m.passes)
            phase = phase_of(
                session, own[i].round, participants[i], starts[i], batches, {"personal": own[i]}, number, {}
            )
            rates = private_rates(session, own[i].round, participants[i].data.n, count, budget)
            phases.append(replace(phase, rates=rates, optimizer=begun(views[i], PRIVATE)))
        for (i, _), end in zip(who, session.execute(session.net, task, phases, session.augment), strict=True):
            check_loss(m, own[i], end.loss)
            ends[i] = end.state
            if end.optimizer is not None:
                kept[i][PRIVATE] = end.optimizer
    keep(views, kept)
    return [
        {**mine, "personal": view.replace(private=end)}
        for mine, view, end in zip(views, own, ends, strict=True)
    ]


def _private_task(
    m: Method, personal: Personal, budget: Budget, session: TrainingSession, lr: float
) -> ClientTask:
    """Return what the private training of all clients with this budget has in common."""
    override = Pass(momentum=budget.momentum, weight_decay=budget.weight_decay)
    solver = solver_for(session.local, override, lr * budget.lr_scale if budget.lr is None else budget.lr)
    plain = type(personal).private_loss is Personal.private_loss and not solver.label_smoothing

    def objective(f: Forward, mine: Views) -> Tensor:
        loss: Tensor = trainable(personal, "private_loss", personal.private_loss(f, mine["personal"]))
        return loss

    return ClientTask(
        objective,
        solver,
        budget.part,
        cross_entropy_only=plain and m.criterion is None,
        repeats=steps_repeat(m),
    )


def _alike(budgets: Sequence[Budget | None]) -> Iterator[tuple[Budget, list[tuple[int, int]]]]:
    """Group clients whose private training differs only in its number of steps.

    Yields (the budget, [(position of the client, its steps)]).
    """
    kinds: dict[Budget, list[tuple[int, int]]] = {}
    for i, budget in enumerate(budgets):
        if budget is not None and (budget.steps or budget.epochs):
            kinds.setdefault(replace(budget, steps=0), []).append((i, budget.steps))
    yield from kinds.items()


def _private_batches(
    session: TrainingSession, round: int, participant: Participant, steps: int, shared: bool
) -> list[Tensor]:
    if shared:
        return _batches(session, round, participant, steps, 0)
    return batch_stream(
        participant.data.n,
        steps,
        session.local,
        seeds.generator(session.seed, "private", round, participant.client),
    )


def phase_of(
    session: TrainingSession,
    round: int,
    participant: Participant,
    start: State,
    batches: list[Tensor],
    views: Views,
    number: int,
    drawn: dict[str, torch.Generator],
    own: Params | None = None,
) -> TrainingPhase:
    """Return a client's training phase. Dropout and augmentation each have their own derived stream."""
    key = round, participant.client, number
    augments = session.augment is not None
    return TrainingPhase(
        start,
        batches,
        participant.data,
        without_optimizer(views),
        own,
        augment=seeds.generator(session.seed, "augment", *key) if augments else None,
        dropout=seeds.generator_on(session.net.device, session.seed, "dropout", *key)
        if session.net.has_dropout
        else None,
        drawn=drawn,
    )


def check_loss(m: Method, k: Context, loss: float) -> None:
    if not math.isfinite(loss):
        raise NumericsError(
            f"{m.name}: the training loss of client {k.client} in round {k.round + 1} is {loss}; "
            "the rounds before are kept: try a smaller lr, or clip_norm"
        )
