"""The algorithm box that every method shares: one client's round, one server's round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.boundary import Broadcast, Private, Server, Upload, Vault, Wire
from raffed.core.context import ClientData, Context, Forward, ServerContext
from raffed.core.errors import NumericsError
from raffed.core.local import Local
from raffed.core.maths import cross_entropy
from raffed.core.method import Budget, Method, Pass, Personal, Received, Spec, Term
from raffed.core.network import Network
from raffed.core.params import Params, State, moved
from raffed.core.sgd import Solver, Trained, batch_stream
from raffed.core.stretch import Augmentation, Execute, Objective, Stretch, Task, Views, draws_of, one_by_one, with_draws

EVAL_CHUNK = 500  # samples per forward pass without gradient; fixed, so that the bits do not depend on the machine


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
    """A client that takes part: its number, what it kept, its data."""

    client: int
    vault: Vault | None
    data: ClientData


@dataclass(frozen=True)
class ClientRound:
    """What a client's round leaves on its side, and the upload. `start`, `trained`: before and after local training."""

    upload: Upload
    vault: Vault
    start: State
    trained: State
    views: Views
    loss: float
    steps: int

    def personal_state(self, m: Method) -> State:
        """The personalised model of this client after this round: the trained one where the method has no other."""
        return self.trained if m.personal is None else m.personal.model(self.views["personal"])

    def personal_logits(self, personal: Personal, x: Tensor) -> Tensor:
        """Logits [B, C] of the personalised model after this round, also where it is more than one state."""
        return personal.predict(x, self.views["personal"])


def client_round(
    m: Method, b: Broadcast, vault: Vault | None, data: ClientData, session: Session, client: int
) -> ClientRound:
    """w_i ← w^t; train; what to keep goes to the vault, what to send to the upload  (style.md §4)."""
    return client_rounds(m, b, [Guest(client, vault, data)], session)[0]


def client_rounds(m: Method, b: Broadcast, guests: Sequence[Guest], session: Session) -> list[ClientRound]:
    """The rounds of several clients, trained by `session.execute`: one after the other, or as one stack."""
    b = b if b.w.device == session.net.device else moved(b, session.net.device)
    contexts = [_begin(m, b, guest, session) for guest in guests]
    views = [_views(m, b, guest.vault, k) for guest, k in zip(guests, contexts, strict=True)]
    train = _train_shared if m.solver is None else _train_by_rule
    trained = train(m, views, contexts, guests, session)
    rate = session.local.rate(b.round)
    ends = [k.but(state=t.state, steps=t.steps, lr_sum=t.steps * rate) for k, t in zip(contexts, trained, strict=True)]
    views = [
        {slot: view.but(state=k.state, steps=k.steps, lr_sum=k.lr_sum) for slot, view in own.items()}
        for own, k in zip(views, ends, strict=True)
    ]
    if m.personal is not None:
        for own, t in zip(views, trained, strict=True):
            own["personal"] = own["personal"].but(own=t.own, carried=t.carried)
    views = _train_private(m, views, guests, session)
    return [_conclude(m, k, own, t, guest.data.n) for k, own, t, guest in zip(ends, views, trained, guests, strict=True)]


def _conclude(m: Method, k: Context, views: Views, trained: Trained, n: int) -> ClientRound:
    """What a client keeps and what it sends."""
    with torch.no_grad():
        done = {slot: one.finish(views[slot]) for slot, one in m.ingredients()}
        sent = m.split.shared(k.w)
        sent = sent.clone() if m.keeps_state else sent  # an upload shares no storage with the vault
        for slot, one in m.ingredients():
            sent = one.outgoing(sent, views[slot])
    local_buffers = m.split.buffers == "local"
    upload = Upload(
        n=n if m.mean.by == "samples" else None,
        w=sent,
        b=Params({}) if local_buffers else k.state.b.clone(),
        slots={slot: wire for slot, (_, wire) in done.items() if wire is not None},
    )
    kept: dict[str, Private] = {slot: own for slot, (own, _) in done.items() if own is not None}
    stays = k.state.b if local_buffers else Params({})
    after = Vault(m.split.own(k.w), stays, kept)
    views = {slot: view.but(mine=kept.get(slot)) for slot, view in views.items()}
    return ClientRound(upload, after, k.start, k.state, views, trained.loss, trained.steps)


def joined(m: Method, b: Broadcast, vault: Vault | None, net: Network) -> State:
    """The broadcast model completed by the client's own layers and buffers (the initial ones before its first visit)."""
    w, buffers = b.w, b.b
    if m.split.personal != "none":
        w = w.joined(vault.v if vault else m.split.own(net.initial.w), net.initial.w.names)
    if m.split.buffers == "local":
        buffers = vault.b if vault else net.initial.b
    return State(w, buffers).to(net.device)


def server_init(m: Method, initial: State, spec: Spec) -> Server:
    """The server before round 0."""
    w = m.split.shared(initial.w)
    slots: dict[str, Wire | Private] = {}
    for slot, one in m.ingredients():
        made = one.server_init(w, spec)
        if made is not None:
            slots[slot] = made
    own = m.server.init(w)
    if own is not None:
        slots["server"] = own
    return Server(0, w, Params({}) if m.split.buffers == "local" else initial.b, slots)


def server_round(m: Method, s: Server, mean_w: Params, mean_b: Params, k: ServerContext) -> Server:
    """w^{t+1} from the mean of the uploads, and every ingredient's server memory from what it received."""
    nothing = Received(0)
    slots: dict[str, Wire | Private | None] = {
        slot: one.server_step(s.slots.get(slot), k.received.get(slot, nothing), k.spec) for slot, one in m.ingredients()
    }
    slots["server"], w = m.server.step(s.slots.get("server"), s.w, mean_w, k)
    slots.update(m.server.tells(slots["server"]))
    return Server(s.round + 1, w, mean_b, {slot: v for slot, v in slots.items() if v is not None})


def scored(m: Method, s: Server) -> Broadcast:
    """What is evaluated as the global model: the broadcast, with the weights that the server's rule wants scored."""
    return s.but(w=m.server.scored(s.slots.get("server"), s.w)).broadcast()


def shared_objective(m: Method, views: Views) -> Callable[[Forward, int], Tensor]:
    """CE(head(logits), y) + Σ terms of one client: what stage 1 minimises, with `drawn` numbers from the terms' streams."""
    task = _shared_task(m, Pass(), Solver(0.0, 0.0, 0.0))
    own = Stretch(State(Params({}), Params({})), (), ClientData(*[torch.empty(0)] * 3), views, drawn=_drawing(task, views))
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
    correct = None if correction is None else lambda g, views: correction.gradient(g, views["correction"])
    drawing = () if one.plain else m.ingredients()
    draws = {slot: term for slot, term in drawing if isinstance(term, Term) and term.purpose is not None}
    dials, turn = (m.personal.dials, m.personal.turn) if m.personal is not None else ((), None)
    return Task(_objective(m, one.plain), solver, one.part, correct, dials, turn, m.solver, draws)


def _drawing(task: Task, views: Views) -> dict[str, torch.Generator]:
    """A client's streams for the terms that draw."""
    return {
        slot: seeds.generator(v.run_seed, one.purpose, v.round, v.client)
        for slot, one in task.draws.items()
        for v in [views[slot]]
    }


def _begin(m: Method, b: Broadcast, guest: Guest, session: Session) -> Context:
    net, batch, data = session.net, session.local.batch_size, guest.data
    start = joined(m, b, guest.vault, net)

    def features(state: State) -> Iterator[tuple[Tensor, Tensor]]:
        return ((z, y) for _, z, y in net.chunks(state, data.x, data.y, EVAL_CHUNK))

    return Context(
        spec=session.spec, run_seed=session.seed, round=b.round, client=guest.client, class_counts=data.class_counts,
        initial=net.initial, start=start, state=start, net=net.apply, features=features,
        momentum=_solver(session.local, m.passes[0], b.round).momentum,
        reestimate=lambda state: net.reestimate(state, data.x, batch),
    )  # fmt: skip


def _views(m: Method, b: Broadcast, vault: Vault | None, k: Context) -> Views:
    """For every ingredient the context with its own memory and its own message, nobody else's."""
    kept, device = vault.slots if vault else {}, k.w0.device
    return {
        slot: k.but(mine=moved(kept[slot], device) if slot in kept else one.client_init(k), server=b.slots.get(slot))
        for slot, one in m.ingredients()
    }


def _train_shared(
    m: Method, views: list[Views], contexts: list[Context], guests: Sequence[Guest], session: Session
) -> list[Trained]:
    """The passes of every client; loss and steps over all of them."""
    local, round = session.local, contexts[0].round
    states = [k.start for k in contexts]
    losses, steps = [0.0] * len(guests), [0] * len(guests)
    drawn = [_drawing(_shared_task(m, Pass(), Solver(0.0, 0.0, 0.0)), own) for own in views]  # they go on from pass to pass
    companions = [_companion(m, own) for own in views]
    for number, one in enumerate(m.passes):
        task = _shared_task(m, one, _solver(local, one, round))
        stretches = []
        for i, guest in enumerate(guests):
            batches = _batches(session, round, guest, local.steps(guest.data.n, one.epochs), number)
            made = _stretch(session, round, guest, states[i], batches, views[i], number, drawn[i])
            stretches.append(replace(made, own=companions[i]))
        done = session.execute(session.net, task, stretches, session.augment)
        for i, end in enumerate(done):
            _check(m, contexts[i], end.loss)
            losses[i] += end.loss * end.steps
            steps[i] += end.steps
        states = [end.state for end in done]
        companions = [end.own if own is not None else None for own, end in zip(companions, done, strict=True)]
    rows = zip(states, losses, steps, done, strict=True)
    return [Trained(state, loss / max(n, 1), n, end.own) for state, loss, n, end in rows]


def _train_by_rule(
    m: Method, views: list[Views], contexts: list[Context], guests: Sequence[Guest], session: Session
) -> list[Trained]:
    """The method's own local solver on as many batches as SGD would take, rounded up to whole steps of the rule."""
    assert m.solver is not None
    round, per = contexts[0].round, m.solver.batches()
    task = _shared_task(m, m.passes[0], _solver(session.local, m.passes[0], round))
    stretches = []
    for k, guest, own in zip(contexts, guests, views, strict=True):
        count = -(-session.local.steps(guest.data.n, m.passes[0].epochs) // per) * per
        batches = _batches(session, round, guest, count, 0)
        stretches.append(_stretch(session, round, guest, k.start, batches, own, 0, _drawing(task, own)))
    done = session.execute(session.net, task, stretches, session.augment)
    for k, end in zip(contexts, done, strict=True):
        _check(m, k, end.loss)
    return done


def _batches(session: Session, round: int, guest: Guest, steps: int, number: int) -> list[Tensor]:
    """A client's batches of one shared pass."""
    return batch_stream(guest.data.n, steps, session.local, seeds.generator(session.seed, "batches", round, guest.client, number))


def _companion(m: Method, views: Views) -> Params | None:
    return m.personal.companion(views["personal"]) if m.personal is not None else None


def _train_private(m: Method, views: list[Views], guests: Sequence[Guest], session: Session) -> list[Views]:
    """The personal ingredient's own training, on its own random stream, from its own start."""
    if m.personal is None:
        return views
    personal = m.personal
    own = [mine["personal"] for mine in views]
    starts = [personal.start(view) for view in own]
    ends = list(starts)
    for budget, who in _alike([personal.budget(view) for view in own]):
        override = Pass(momentum=budget.momentum, weight_decay=budget.weight_decay)
        solver = _solver(session.local, override, own[0].round, budget.lr_scale)
        solver = solver if budget.lr is None else replace(solver, lr=budget.lr)
        task = Task(lambda f, mine: personal.private_loss(f, mine["personal"]), solver, budget.part)
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
    drawn: dict[str, torch.Generator],
) -> Stretch:  # fmt: skip
    """A client's stretch, with dropout and augmentation each from its own derived stream."""
    key = round, guest.client, number
    bends = session.augment is not None
    return Stretch(
        start, batches, guest.data, views,
        augment=seeds.generator(session.seed, "augment", *key) if bends else None,
        dropout=seeds.generator_on(session.net.device, session.seed, "dropout", *key) if session.net.has_dropout else None,
        drawn=drawn,
    )  # fmt: skip


def _solver(local: Local, one: Pass, round: int, scale: float = 1.0) -> Solver:
    momentum = local.momentum if one.momentum is None else one.momentum
    decay = local.weight_decay if one.weight_decay is None else one.weight_decay
    return Solver(local.rate(round) * scale, momentum, decay, local.clip_norm)


def _check(m: Method, k: Context, loss: float) -> None:
    if not math.isfinite(loss):
        raise NumericsError(
            f"{m.name}: the training loss of client {k.client} in round {k.round + 1} is {loss}; "
            "the rounds before are kept: try a smaller lr, or clip_norm"
        )
