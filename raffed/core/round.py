"""The algorithm box that every method shares: one client's round, one server's round."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.boundary import Broadcast, Private, Server, Upload, Vault, Wire
from raffed.core.context import ClientData, Context, Forward, ServerContext
from raffed.core.errors import NumericsError
from raffed.core.local import Local
from raffed.core.maths import cross_entropy
from raffed.core.method import Method, Pass, Personal, Received, Spec, Term
from raffed.core.network import Network
from raffed.core.params import Params, State, moved
from raffed.core.sgd import Beside, Solver, Trained, batch_stream, sgd, solve

EVAL_CHUNK = 500  # samples per forward pass without gradient; fixed, so that the bits do not depend on the machine

Views = dict[str, Context]


@dataclass(frozen=True)
class Session:
    """What does not change from round to round: the network, how clients train, the seed, the augmentation."""

    net: Network
    local: Local
    seed: int
    spec: Spec
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None


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
    k = _begin(m, b, vault, data, session, client)
    views = _views(m, b, vault, k)
    train = _train_shared if m.solver is None else _train_by_rule
    trained = train(m, views, k, data, session)
    k = k.but(state=trained.state, steps=trained.steps, lr_sum=trained.steps * session.local.rate(b.round))
    views = {slot: view.but(state=k.state, steps=k.steps, lr_sum=k.lr_sum) for slot, view in views.items()}
    if "personal" in views:
        views["personal"] = views["personal"].but(own=trained.own, carried=trained.carried)
    views = _train_private(m, views, data, session)
    with torch.no_grad():
        done = {slot: one.finish(views[slot]) for slot, one in m.ingredients()}
        sent = m.split.shared(k.w).clone()  # an upload shares no storage with the vault
        for slot, one in m.ingredients():
            sent = one.outgoing(sent, views[slot])
    local_buffers = m.split.buffers == "local"
    upload = Upload(
        n=data.n if m.mean.by == "samples" else None,
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
    return Server(s.round + 1, w, mean_b, {slot: v for slot, v in slots.items() if v is not None})


def scored(m: Method, s: Server) -> Broadcast:
    """What is evaluated as the global model: the broadcast, with the weights that the server's rule wants scored."""
    return s.but(w=m.server.scored(s.slots.get("server"), s.w)).broadcast()


def shared_objective(m: Method, views: Views) -> Callable[[Forward, int], Tensor]:
    """CE(head(logits), y) + Σ terms: what stage 1 minimises. `drawn` numbers come from each term's own stream."""
    head, terms = m.head, [(slot, one) for slot, one in m.ingredients() if isinstance(one, Term)]
    streams = {
        slot: seeds.generator(v.run_seed, one.purpose, v.round, v.client)
        for slot, one in terms
        if one.purpose is not None
        for v in [views[slot]]
    }

    def objective(f: Forward, step: int) -> Tensor:
        logits = f.logits if head is None else head.logits(f.logits, views["head"])
        loss = cross_entropy(logits, f.y)
        for slot, one in terms:
            view = views[slot]
            if slot in streams:
                view = view.but(drawn=one.draw(len(f.y), streams[slot]))
            loss = loss + one.loss(f, view)
        if m.personal is not None:
            extra = m.personal.loss(f, views["personal"])
            loss = loss if extra is None else loss + extra
        return loss

    return objective


def _begin(m: Method, b: Broadcast, vault: Vault | None, data: ClientData, session: Session, client: int) -> Context:
    net, batch = session.net, session.local.batch_size
    start = joined(m, b, vault, net)

    def features(state: State) -> Iterator[tuple[Tensor, Tensor]]:
        return ((z, y) for _, z, y in net.chunks(state, data.x, data.y, EVAL_CHUNK))

    return Context(
        spec=session.spec, run_seed=session.seed, round=b.round, client=client, class_counts=data.class_counts,
        initial=net.initial, start=start, state=start, net=net.apply, features=features,
        momentum=_solver(session.local, m.passes[0], b.round).momentum,
        reestimate=lambda state: net.reestimate(state, data.x, batch),
    )  # fmt: skip


def _views(m: Method, b: Broadcast, vault: Vault | None, k: Context) -> Views:
    """For every ingredient the context with its own memory and its own message, nobody else's."""
    kept, device = vault.slots if vault else {}, k.w0.device
    return {
        slot: k.but(
            mine=moved(kept[slot], device) if slot in kept else one.client_init(k),
            server=moved(b.slots.get(slot), device),
        )
        for slot, one in m.ingredients()
    }


def _train_shared(m: Method, views: Views, k: Context, data: ClientData, session: Session) -> Trained:
    objective, correction, local = shared_objective(m, views), m.correction, session.local
    state, loss, steps, beside = k.start, 0.0, 0, _beside(m, views)
    for number, one in enumerate(m.passes):
        count = local.steps(data.n, one.epochs)
        draws = seeds.generator(session.seed, "batches", k.round, k.client, number)
        batches = batch_stream(data.n, count, local, draws)
        correct = None
        if correction is not None:
            view = views["correction"]
            correct = lambda g, view=view: correction.gradient(g, view)  # noqa: E731
        with _streams(session, k, number) as augment:
            done = sgd(session.net, state, objective, data, batches, _solver(local, one, k.round),
                       part=one.part, correct=correct, augment=augment, beside=beside)  # fmt: skip
        _check(m, k, done.loss)
        state, steps = done.state, steps + done.steps
        loss += done.loss * done.steps
        beside = replace(beside, own=done.own) if beside else None
    return Trained(state, loss / steps, steps, done.own)


def _train_by_rule(m: Method, views: Views, k: Context, data: ClientData, session: Session) -> Trained:
    """The method's own local solver on as many batches as SGD would take, rounded up to whole steps of the rule."""
    rule, local, per = m.solver, session.local, m.solver.batches() if m.solver else 1
    assert rule is not None
    count = -(-local.steps(data.n, m.passes[0].epochs) // per) * per
    batches = batch_stream(data.n, count, local, seeds.generator(session.seed, "batches", k.round, k.client, 0))
    objective = shared_objective(m, views)
    with _streams(session, k, 0) as augment:
        done = solve(session.net, rule, views["solver"], objective, data, batches, local.clip_norm, augment)
    _check(m, k, done.loss)
    return done


def _beside(m: Method, views: Views) -> Beside | None:
    own = m.personal.companion(views["personal"]) if m.personal is not None else None
    return None if own is None or m.personal is None else Beside(own, m.personal.dials, m.personal.turn)


def _train_private(m: Method, views: Views, data: ClientData, session: Session) -> Views:
    """The personal ingredient's own training, on its own random stream, from its own start."""
    if m.personal is None:
        return views
    personal, view = m.personal, views["personal"]
    budget = personal.budget(view)
    if budget is None or (budget.steps == 0 and not budget.epochs):
        return {**views, "personal": view.but(private=personal.start(view))}
    steps = budget.steps if budget.epochs is None else session.local.steps(data.n, budget.epochs)
    own = seeds.generator(session.seed, "private", view.round, view.client)
    draws = seeds.generator(session.seed, "batches", view.round, view.client, 0) if budget.shared_batches else own
    batches = batch_stream(data.n, steps, session.local, draws)
    solver = _solver(session.local, Pass(momentum=budget.momentum, weight_decay=budget.weight_decay), view.round, budget.lr_scale)
    if budget.lr is not None:
        solver = replace(solver, lr=budget.lr)

    def objective(f: Forward, step: int) -> Tensor:
        return personal.private_loss(f, view)

    with _streams(session, view, 0 if budget.shared_batches else len(m.passes)) as augment:
        done = sgd(session.net, personal.start(view), objective, data, batches, solver, part=budget.part, augment=augment)
    _check(m, view, done.loss)
    return {**views, "personal": view.but(private=done.state)}


def _solver(local: Local, one: Pass, round: int, scale: float = 1.0) -> Solver:
    momentum = local.momentum if one.momentum is None else one.momentum
    decay = local.weight_decay if one.weight_decay is None else one.weight_decay
    return Solver(local.rate(round) * scale, momentum, decay, local.clip_norm)


@contextlib.contextmanager
def _streams(session: Session, k: Context, stretch: int) -> Iterator[Callable[[Tensor], Tensor] | None]:
    """Dropout and augmentation of one stretch of training, each from its own derived stream."""
    with contextlib.ExitStack() as stack:
        if session.net.has_dropout:
            value = seeds.seed(session.seed, "dropout", k.round, k.client, stretch)
            stack.enter_context(seeds.forked(value, (session.net.device,)))
        if session.augment is None:
            yield None
        else:
            draws, transform = seeds.generator(session.seed, "augment", k.round, k.client, stretch), session.augment
            yield lambda x: transform(x, draws)


def _check(m: Method, k: Context, loss: float) -> None:
    if not math.isfinite(loss):
        raise NumericsError(
            f"{m.name}: the training loss of client {k.client} in round {k.round + 1} is {loss}; "
            "the rounds before are kept: try a smaller lr, or clip_norm"
        )
