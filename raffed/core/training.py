"""What the clients of a round train: their objectives, batches and random streams, given to an execution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.boundary import Vault
from raffed.core.context import ClientData, Context, Forward
from raffed.core.errors import NumericsError
from raffed.core.local import Local
from raffed.core.maths import cross_entropy
from raffed.core.method import Budget, Method, Pass, Personal, Spec, Term
from raffed.core.network import Network
from raffed.core.params import Params, State
from raffed.core.sgd import Solver, Trained, batch_stream
from raffed.core.stretch import Augmentation, Execute, Objective, Stretch, Task, Views, draws_of, one_by_one, summed, with_draws


@dataclass(frozen=True)
class Session:
    """What does not change from round to round: the network, how clients train, the seed, the augmentation, the execution."""

    net: Network
    local: Local
    seed: int
    spec: Spec
    augment: Augmentation | None = None
    execute: Execute = one_by_one


@dataclass(frozen=True)
class Guest:
    """A client that takes part: its number, what it kept, its data, and the share of its shared steps that it makes."""

    client: int
    vault: Vault | None
    data: ClientData
    effort: float = 1.0

    def steps(self, local: Local, epochs: float | None) -> int:
        """Its steps of a shared pass; a straggler's are the first of them, at least one."""
        steps = local.steps(self.data.n, epochs)
        return (steps if self.effort == 1.0 else math.ceil(round(self.effort * steps, 6))) or 1


def shared_objective(m: Method, views: Views) -> Callable[[Forward, int], Tensor]:
    """CE(head(logits), y) + Σ terms of one client: what stage 1 minimises, with `drawn` numbers from the terms' streams."""
    task = _shared_task(m, Pass(), Solver(0.0, 0.0, 0.0))
    own = Stretch(State(Params({}), Params({})), (), ClientData(*[torch.empty(0)] * 3), views, drawn=_drawing(task.draws, views))
    return lambda f, step: task.objective(f, with_draws(views, draws_of(task, own, len(f.y))))


def _objective(m: Method, plain: bool) -> Objective:
    head, personal = m.head, None if plain else m.personal
    terms = [] if plain else [(slot, one) for slot, one in m.ingredients() if isinstance(one, Term)]

    def objective(f: Forward, views: Views) -> Tensor:
        logits = f.logits if head is None else head.logits(f.logits, views["head"])
        loss = cross_entropy(logits, f.y)
        for slot, one in terms:
            loss = loss + one.loss(f, views[slot])
        extra = None if personal is None else personal.loss(f, views["personal"])
        return loss if extra is None else loss + extra

    return objective


def _shared_task(m: Method, one: Pass, solver: Solver) -> Task:
    correction = m.correction
    correct = None if correction is None else lambda g, w, views: correction.gradient_at(g, w, views["correction"])
    dials, turn, jointly = (m.personal.dials, m.personal.turn, m.personal.clips_jointly) if m.personal else ((), None, False)
    draws = {} if one.plain else _draws(m)
    notes = {} if one.plain else _notes(m)
    return Task(
        _objective(m, one.plain), solver, one.part, correct, dials, turn, jointly, m.solver, draws, notes, _is_plain(m, one)
    )  # fmt: skip


def _is_plain(m: Method, one: Pass) -> bool:
    """Whether a shared pass minimises the cross-entropy of the network's own logits alone."""
    added = any(isinstance(part, Term) for _, part in m.ingredients()) or (
        m.personal is not None and type(m.personal).loss is not Personal.loss
    )
    return m.head is None and (one.plain or not added)


def _draws(m: Method) -> dict[str, Term]:
    """The terms that want random numbers, by slot."""
    return {slot: one for slot, one in m.ingredients() if isinstance(one, Term) and one.purpose is not None}


def _notes(m: Method) -> dict[str, Term]:
    """The terms that note something at every step, by slot."""
    return {slot: one for slot, one in m.ingredients() if isinstance(one, Term) and type(one).note is not Term.note}


def _drawing(draws: Mapping[str, Term], views: Views) -> dict[str, torch.Generator]:
    """A client's streams for the terms that draw."""
    return {
        slot: seeds.generator(v.run_seed, one.purpose, v.round, v.client) for slot, one in draws.items() for v in [views[slot]]
    }


def train_shared(
    m: Method, views: list[Views], contexts: list[Context], guests: Sequence[Guest], session: Session
) -> list[Trained]:
    """The passes of every client; loss and steps over all of them."""
    local, round = session.local, contexts[0].round
    states = [k.start for k in contexts]
    losses, steps = [0.0] * len(guests), [0] * len(guests)
    draws = _draws(m)
    drawn = [_drawing(draws, own) for own in views]  # they go on from pass to pass
    noted: list[dict[str, Tensor]] = [{} for _ in guests]
    companions = [_companion(m, own) for own in views]
    for number, one in enumerate(m.passes):
        task = _shared_task(m, one, solver_for(local, one, round))
        stretches = []
        for i, guest in enumerate(guests):
            mine = _batched(session, one, guest.data.n)
            batches = _batches(replace(session, local=mine), round, guest, guest.steps(mine, one.epochs), number)
            stretches.append(_stretch(session, round, guest, states[i], batches, views[i], number, drawn[i], companions[i]))
        done = session.execute(session.net, task, stretches, session.augment)
        for i, end in enumerate(done):
            _check(m, contexts[i], end.loss)
            losses[i] += end.loss * end.steps
            steps[i] += end.steps
            noted[i] = summed(noted[i], end.noted)
        states = [end.state for end in done]
        companions = [end.own if own is not None else None for own, end in zip(companions, done, strict=True)]
    rows = zip(states, losses, steps, done, noted, strict=True)
    return [Trained(state, loss / max(n, 1), n, end.own, noted=sums) for state, loss, n, end, sums in rows]


def train_by_rule(
    m: Method, views: list[Views], contexts: list[Context], guests: Sequence[Guest], session: Session
) -> list[Trained]:
    """The method's own local solver, for as many of its steps as it says."""
    assert m.solver is not None
    round, per = contexts[0].round, m.solver.batches()
    task = _shared_task(m, m.passes[0], solver_for(session.local, m.passes[0], round))
    stretches = []
    for k, guest, own in zip(contexts, guests, views, strict=True):
        count = m.solver.iterations(guest.steps(session.local, m.passes[0].epochs)) * per
        batches = _batches(session, round, guest, count, 0)
        stretches.append(_stretch(session, round, guest, k.start, batches, own, 0, _drawing(task.draws, own)))
    done = session.execute(session.net, task, stretches, session.augment)
    for k, end in zip(contexts, done, strict=True):
        _check(m, k, end.loss)
    return done


def _batched(session: Session, one: Pass, n: int) -> Local:
    """How a client with n samples cuts them into the batches of a pass: without a last batch of one where that is left out."""
    alone = not one.lone and session.net.normalises and n % session.local.batch_size == 1
    return replace(session.local, drop_last=True) if alone else session.local


def _batches(session: Session, round: int, guest: Guest, steps: int, number: int) -> list[Tensor]:
    """A client's batches of one shared pass."""
    return batch_stream(guest.data.n, steps, session.local, seeds.generator(session.seed, "batches", round, guest.client, number))


def _companion(m: Method, views: Views) -> Params | None:
    return m.personal.companion(views["personal"]) if m.personal is not None else None


def train_private(m: Method, views: list[Views], guests: Sequence[Guest], session: Session) -> list[Views]:
    """The personal ingredient's own training, on its own random stream, from its own start."""
    if m.personal is None:
        return views
    personal = m.personal
    own = [mine["personal"] for mine in views]
    starts = [personal.start(view) for view in own]
    ends = list(starts)
    for budget, who in _alike([personal.budget(view) for view in own]):
        override = Pass(momentum=budget.momentum, weight_decay=budget.weight_decay)
        solver = solver_for(session.local, override, own[0].round, budget.lr_scale)
        solver = solver if budget.lr is None else replace(solver, lr=budget.lr)
        plain = type(personal).private_loss is Personal.private_loss
        task = Task(lambda f, mine: personal.private_loss(f, mine["personal"]), solver, budget.part, plain=plain)
        stretches = []
        for i, steps in who:
            count = steps if budget.epochs is None else session.local.steps(guests[i].data.n, budget.epochs)
            batches = _private_batches(session, own[i].round, guests[i], count, budget.shared_batches)
            number = 0 if budget.shared_batches else len(m.passes)
            stretches.append(_stretch(session, own[i].round, guests[i], starts[i], batches, {"personal": own[i]}, number, {}))
        for (i, _), end in zip(who, session.execute(session.net, task, stretches, session.augment), strict=True):
            _check(m, own[i], end.loss)
            ends[i] = end.state
    return [{**mine, "personal": view.but(private=end)} for mine, view, end in zip(views, own, ends, strict=True)]


def _alike(budgets: Sequence[Budget | None]) -> Iterator[tuple[Budget, list[tuple[int, int]]]]:
    """Clients whose private training differs in its number of steps alone: (the budget, [(which client, its steps)])."""
    kinds: dict[Budget, list[tuple[int, int]]] = {}
    for i, budget in enumerate(budgets):
        if budget is not None and (budget.steps or budget.epochs):
            kinds.setdefault(replace(budget, steps=0), []).append((i, budget.steps))
    yield from kinds.items()


def _private_batches(session: Session, round: int, guest: Guest, steps: int, shared: bool) -> list[Tensor]:
    if shared:
        return _batches(session, round, guest, steps, 0)
    return batch_stream(guest.data.n, steps, session.local, seeds.generator(session.seed, "private", round, guest.client))


def _stretch(
    session: Session, round: int, guest: Guest, start: State, batches: list[Tensor], views: Views, number: int,
    drawn: dict[str, torch.Generator], own: Params | None = None,
) -> Stretch:  # fmt: skip
    """A client's stretch, with dropout and augmentation each from its own derived stream."""
    key = round, guest.client, number
    bends = session.augment is not None
    return Stretch(
        start, batches, guest.data, views, own,
        augment=seeds.generator(session.seed, "augment", *key) if bends else None,
        dropout=seeds.generator_on(session.net.device, session.seed, "dropout", *key) if session.net.has_dropout else None,
        drawn=drawn,
    )  # fmt: skip


def solver_for(local: Local, one: Pass, round: int, scale: float = 1.0) -> Solver:
    momentum = local.momentum if one.momentum is None else one.momentum
    decay = local.weight_decay if one.weight_decay is None else one.weight_decay
    return Solver(local.rate(round) * scale, momentum, decay, local.clip_norm)


def _check(m: Method, k: Context, loss: float) -> None:
    if not math.isfinite(loss):
        raise NumericsError(
            f"{m.name}: the training loss of client {k.client} in round {k.round + 1} is {loss}; "
            "the rounds before are kept: try a smaller lr, or clip_norm"
        )
