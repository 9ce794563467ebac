"""The steps that every method shares: one client's round, and one round of the server."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from raffed.core.aggregation.robust_means import robust_mean
from raffed.core.context import ClientData, Context, Received, ServerContext, Spec
from raffed.core.ingredients import Ingredient, Personal
from raffed.core.ingredients.base import fault, is_raffeds, remembers
from raffed.core.messages import Addressed, Broadcast, ClientState, Private, ServerState, Upload, Wire, moved
from raffed.core.method import Method, unmoved
from raffed.core.own_functions import NAME
from raffed.core.params import Params, Record, State, fields_of
from raffed.core.parts import ParameterSplit
from raffed.core.server import ServerRule, replied, unaddressed
from raffed.core.training.network import Network, batch_gradients, reestimated
from raffed.core.training.optimizers import SgdRule
from raffed.core.training.phases import Visit, make_opening, train, train_private
from raffed.core.training.session import ClientClock, Participant, TrainingSession, solver_for
from raffed.core.training.task import Views
from raffed.errors import NumericsError, UsageError
from raffed.own.user_code import described, place_of

# Models and memories that have diverged: they are found in the round in which they do, with advice.
#
# What is looked for is a weight that is not finite, and NaN in any other number that somebody remembers.
# Infinity may be meant there, as in the best loss so far, and so may −∞ as the logarithm of 0.


KEPT = "the rounds before are kept: try a smaller lr, or clip_norm"


@contextlib.contextmanager
def explained(m: Method) -> Iterator[None]:
    """Add the method's own coefficients to the message of a NumericsError that is raised in the body."""
    try:
        yield
    except NumericsError as error:
        if not m.strengths:
            raise
        pairs = ", ".join(f"{name} = {value:g}" for name, value in m.strengths)
        raise NumericsError(f"{error}; or a smaller value of {m.name}'s own coefficients: {pairs}") from error


def check_client(method: str, state: ClientState, client: int, round: int) -> None:
    """Check what a client keeps after its round.

    Args:
        method: Name of the method.
        state: What it keeps.
        client: Number of the client.
        round: Number of the round, counted from 0.

    Raises:
        NumericsError: A weight that it keeps is not finite, or a memory holds NaN.
    """
    where = _diverged({"its own layers": state.v, "its own statistics": state.b, **state.slots})
    if where:
        raise NumericsError(
            f"{method}: what client {client} keeps after round {round + 1} has diverged ({where}); {KEPT}"
        )


def check_server(method: str, rule: ServerRule, state: ServerState) -> None:
    """Check the server's model and its memories after a round.

    The uploads are in the range of exact sums, so what is wrong here was made at the server.

    Args:
        method: Name of the method.
        rule: The server's rule.
        state: The server's state after the round.

    Raises:
        NumericsError: A weight is not finite, or a memory holds NaN.
    """
    where = _diverged({"the model": state.w, "its statistics": state.b, **state.slots})
    if where:
        raise NumericsError(
            f"{method}: the server's state after round {state.round} has diverged ({where}), although all "
            f"uploads were finite: {_made_by(type(rule))}; {KEPT}"
        )


def check_evaluated(method: str, rule: ServerRule, w: Params, round: int) -> None:
    """Check the weights that a server's rule chooses for evaluation.

    Raises:
        NumericsError: A weight is not finite.
    """
    where = _diverged({"the model": w})
    if where:
        raise NumericsError(
            f"{method}: the weights for evaluation after round {round} have diverged ({where}): "
            f"{_made_by(type(rule))}"
        )


def _made_by(kind: type[ServerRule]) -> str:
    if is_raffeds(kind):
        return f"it is the step of the server's rule {kind.__name__} or of an ingredient's memory"
    step = f"{place_of(kind.step)}, {kind.__name__}.step"
    return f"look at {step}, and at what the ingredients remember at the server"


def _diverged(parts: Mapping[str, Any]) -> str:
    """Return where the first number that has diverged is, such as "term-Anchor.w", or ""."""
    tensors = [pair for name, part in parts.items() for pair in _tensors(name, part)]
    # All sums are made before the first one is read, because reading waits for a GPU
    sums = [t.sum() for _, t, _ in tensors]
    for (path, t, weights), total in zip(tensors, sums, strict=True):
        if not math.isfinite(float(total)) and bool((~t.isfinite() if weights else t.isnan()).any()):
            return path
    return ""


def _tensors(path: str, part: Any) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield the tensors of floats in a record, each with its path and whether it holds weights."""
    if isinstance(part, Params):
        if part.is_flat:
            yield path, part.flat, True
        else:
            yield from ((path, tensor, True) for tensor in part.tensors.values())
    elif isinstance(part, Tensor):
        if part.is_floating_point():
            yield path, part, False
    elif isinstance(part, float):
        yield path, torch.tensor(part), False
    elif isinstance(part, Record | dict):
        inside = fields_of(part) if isinstance(part, Record) else part
        for name, value in inside.items():
            yield from _tensors(f"{path}.{name}", value)


EVAL_CHUNK = 500  # samples per pass without gradient; fixed, so that bits do not depend on the machine
# The step of a server's rule: its memory, w^t, the mean and the context → its memory and w^{t+1}
ServerStep = Callable[[Any, Params, Params, ServerContext], tuple[Any, Params]]


@dataclass(frozen=True, kw_only=True)
class ClientModels:
    """A client with its models.

    Attributes:
        trained: Its copy of the shared model.
        views: What each of its ingredients knows, by slot.
    """

    trained: State
    views: Views

    def personal_state(self, m: Method) -> State:
        """Return the client's personalised model after this round.

        It is the trained model if the method does not make another one.
        """
        return self.trained if m.personal is None else m.personal.model(self.views["personal"])

    def personal_logits(self, personal: Personal, x: Tensor) -> Tensor:
        """Return logits [B, C] of the personalised model, which may consist of several models."""
        return personal.predict(x, self.views["personal"])


@dataclass(frozen=True, kw_only=True)
class ClientRound(ClientModels):
    """The result of a client's round: what stays on its side, and its upload.

    `start` is the model as downloaded, joined with the client's own layers. `still` is what the client would
    upload if it had not moved (`raffed.core.method.unmoved`) from that or, if it tells shares, from the model
    after its opening. `idle` names the user's own terms whose value had no gradient.
    """

    upload: Upload
    client_state: ClientState
    start: State
    still: Params
    loss: float
    steps: int
    idle: tuple[str, ...] = ()


def client_round(
    m: Method,
    b: Broadcast,
    client_state: ClientState | None,
    data: ClientData,
    session: TrainingSession,
    client: int,
) -> ClientRound:
    """Train one client for a round, starting from the server's model w^t (docs/design.md §9).

    What the client keeps goes to its client state, and what it sends goes to the upload.
    """
    return client_rounds(m, b, [Participant(client, client_state, data)], session)[0]


def client_rounds(
    m: Method, b: Broadcast, participants: Sequence[Participant], session: TrainingSession
) -> list[ClientRound]:
    """Train several clients for a round by `session.execute`, one after the other or as one stack."""
    b = b if b.w.device == session.net.device else moved(b, session.net.device)
    visits = [begin(m, b, participant, session) for participant in participants]
    if m.opening is not None:
        make_opening(m, visits, session)
    train(m, visits, session)
    if m.personal is not None:
        train_private(m, visits, session)
    with torch.no_grad():
        return [_conclude(m, visit) for visit in visits]


def begin(m: Method, b: Broadcast, participant: Participant, session: TrainingSession) -> Visit:
    """Return a client's visit at its beginning: w_i ← w^t, joined with the client's own layers.

    Each ingredient knows its own memory and message, and nobody else's.
    """
    net, local, data = session.net, session.local, participant.data
    b = replied(b, participant.client) if participant.sent is None else participant.sent
    b = b if b.w.device == net.device else moved(b, net.device)
    start = joined(m.split, b, participant.client_state, net)
    clock = ClientClock.of(m.training, session, b.round, participant)
    solver = solver_for(local, m.passes[0], clock.first, m.needs_sgd)

    def features(state: State) -> Iterator[tuple[Tensor, Tensor]]:
        return ((z, y) for _, z, y in net.chunks(state, data.x, data.y, EVAL_CHUNK))

    def held_out(state: State) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = data.held_out or (data.x, data.y)
        return ((z, y) for _, z, y in net.chunks(state, x, y, EVAL_CHUNK))

    k: Context = Context(
        spec=session.spec,
        run_seed=session.seed,
        round=b.round,
        client=participant.client,
        class_counts=data.class_counts,
        initial=net.initial,
        start=start,
        state=start,
        net=net.apply,
        features=features,
        held_out=held_out,
        mine=None,
        server=None,
        momentum=solver.momentum,
        nesterov=isinstance(solver.rule, SgdRule) and solver.rule.nesterov,
        weight_decay=solver.weight_decay,
        lr=clock.first,
        warmth=local.warmth(b.round),
        warm_lr=local.rate(b.round),
        label_smoothing=local.label_smoothing,
        usual_steps=local.steps(-(-session.spec.samples // session.spec.num_clients), m.passes[0].epochs),
        reestimate=lambda state: reestimated(net, state, data.x, local.batch_size),
        gradients=lambda state, loss: batch_gradients(net, state, data, local.batch_size, loss),
        criterion=m.criterion,
    )
    kept = participant.client_state.slots if participant.client_state else {}
    views = {
        slot: k.replace(
            mine=moved(kept[slot], k.w0.device)
            if slot in kept
            else m.hooks["client_init"][slot].client_init(k)
            if slot in m.hooks["client_init"]
            else None,
            server=b.slots.get(slot),
        )
        for slot, _ in m.ingredients()
    }
    return Visit(participant=participant, clock=clock, downloaded=start, k=k, views=views)


def _conclude(m: Method, visit: Visit) -> ClientRound:
    """Return what a client keeps and what it sends. It is called without gradient."""
    k, views = visit.k, visit.views
    done: dict[str, tuple[Private | None, Wire | None]] = {
        slot: (view.mine, None) for slot, view in views.items()
    }
    for slot, ingredient in m.hooks["finish"].items():
        memory, message = done[slot] = ingredient.finish(views[slot])
        if not (isinstance(memory, Private | None) and isinstance(message, Wire | None)):
            raise fault(
                ingredient,
                "finish",
                f"returned {described(memory)} to keep and {described(message)} to send; only a Private "
                "record may stay with the client, and only a Wire may travel",
            )
        if memory is not None and not remembers(type(ingredient)):
            raise fault(
                ingredient,
                "finish",
                "returned a memory, but the class has no client_init, so nothing would be kept; write "
                "`def client_init(self, k)`, which makes the memory of a client at its first participation",
            )
    sent = m.split.shared(k.w, k.spec.norms)
    # So that an upload shares no storage with the client state
    sent = sent.clone() if m.keeps_state else sent
    for slot, ingredient in m.hooks["outgoing"].items():
        sent = ingredient.outgoing(sent, views[slot])
    shares = [ingredient.shares(views[slot]) for slot, ingredient in m.hooks["shares"].items()]
    begun = k.start if shares else visit.downloaded
    still = unmoved(m.split.shared(begun.w, k.spec.norms), m.sends_update)
    if m.compression is not None:
        sent, left = m.compression.compress(sent, still, views["compression"])
        done["compression"] = left, None
    local_buffers = m.split.buffers == "local"
    upload = Upload(
        n=visit.participant.data.n if m.mean.by == "samples" else None,
        w=sent,
        b=Params({}) if local_buffers else k.state.b.clone(),
        slots={slot: wire for slot, (_, wire) in done.items() if wire is not None},
        report=None if m.mean.reweighting is None else m.mean.reweighting.report(k.class_counts),
        shares=shares[0] if shares else None,
    )
    kept: dict[str, Private] = {slot: memory for slot, (memory, _) in done.items() if memory is not None}
    stays = k.state.b if local_buffers else Params({})
    after = ClientState(m.split.own(k.w, k.spec.norms), stays, kept)
    if not after.empty:
        check_client(m.name, after, k.client, k.round)
    views = {slot: view.replace(mine=kept.get(slot)) for slot, view in views.items()}
    return ClientRound(
        upload=upload,
        client_state=after,
        start=visit.downloaded,
        still=still,
        trained=k.state,
        views=views,
        loss=visit.loss,
        steps=k.steps,
        idle=visit.idle,
    )


def between_rounds(
    m: Method, b: Broadcast, participant: Participant, session: TrainingSession
) -> ClientModels:
    """Return a client's models between rounds.

    The server's new model is joined with what the client kept when it last took part. If its personalised
    model needs more than that (`Personal.between`), it is trained, and nothing of that training is kept.
    """
    if m.personal is not None and m.personal.between == "round":
        return client_rounds(m, b, [participant], session)[0]
    visit = begin(m, b, participant, session)
    if m.opening is not None:
        make_opening(m, [visit], session)
    if m.personal is not None and m.personal.between == "private":
        train_private(m, [visit], session)
    return ClientModels(trained=visit.k.start, views=visit.views)


def joined(split: ParameterSplit, b: Broadcast, client_state: ClientState | None, net: Network) -> State:
    """Return the broadcast model completed by the client's own layers and buffers.

    Before the client's first participation these are the initial ones.
    """
    w, buffers = b.w, b.b
    if split.personal != "none":
        own_layers = client_state.v if client_state else split.own(net.initial.w, net.norm_names)
        w = w.joined(own_layers, net.initial.w.names)
    if split.buffers == "local":
        buffers = client_state.b if client_state else net.initial.b
    return State(w, buffers).to(net.device)


def server_init(m: Method, initial: State, spec: Spec) -> ServerState:
    """Return the server's state before the first round."""
    w = m.split.shared(initial.w, spec.norms)
    slots: dict[str, Wire | Private] = {}
    for slot, ingredient in m.hooks["server_init"].items():
        memory = ingredient.server_init(w, spec)
        if memory is not None:
            slots[slot] = memory
    rule_memory = m.server.init(w)
    if rule_memory is not None:
        slots["server"] = rule_memory
    return ServerState(0, w, Params({}) if m.split.buffers == "local" else initial.b, slots)


def server_round(
    m: Method,
    s: ServerState,
    mean_w: Params,
    mean_b: Params,
    k: ServerContext,
    step: ServerStep | None = None,
) -> ServerState:
    """Return the server's state after a round.

    The next weights w^{t+1} are made from the mean of the uploads, or from what a robust rule makes of them.
    The server memory of every ingredient is made from what it received.

    Args:
        m: The method.
        s: The state before the round.
        mean_w: The mean of the uploaded weights.
        mean_b: The mean of the uploaded BatchNorm statistics.
        k: What the server knows.
        step: What makes the step of the server's rule, if it is not made here (`ServerRule.on_device`).

    Raises:
        NumericsError: The new model is not finite, or a memory holds NaN.
    """
    nothing, k = Received(0), replace(k, sent_b=s.b)
    uploads = k.received.get("server", nothing)
    if uploads.totals is not None and uploads.count != k.count:
        raise UsageError(
            f"{m.name}: {uploads.count} of {k.count} clients told shares of columns; `shares` must return "
            "them for all clients or for none"
        )
    if m.mean.rule is not None:
        mean_w, mean_b = robust_mean(m.mean, k.uploads, s, mean_w, mean_b)
        k = replace(k, b=mean_b)
    slots: dict[str, Wire | Private | None] = {slot: s.slots.get(slot) for slot, _ in m.ingredients()}
    for slot, ingredient in m.hooks["server_step"].items():
        slots[slot] = ingredient.server_step(slots[slot], k.received.get(slot, nothing), k.spec)
    slots["server"], w = (step or m.server.step)(s.slots.get("server"), s.w, mean_w, k)
    slots.update(_extra(m.name, m.server, [slot for slot, _ in m.ingredients()], slots["server"]))
    kept = {slot: v for slot, v in slots.items() if v is not None}
    after = ServerState(s.round + 1, w, m.server.statistics(s.b, mean_b, k), kept)
    check_server(m.name, m.server, after)
    return after


def _extra(method: str, rule: ServerRule, known: list[str], memory: Any) -> dict[str, Wire]:
    """Return what the server's rule broadcasts in addition: to slots that the method has, and replies."""
    messages = rule.extra_broadcast(memory)
    for slot, message in messages.items():
        if not isinstance(message, Wire):
            raise fault(rule, "extra_broadcast", f"has {described(message)}; only a Wire may travel")
        if slot not in known and not (isinstance(message, Addressed) and slot != "server"):
            raise fault(
                rule,
                "extra_broadcast",
                f"has a message for the slot {slot!r}, which nothing reads; the slots of {method} are "
                f"{', '.join(known) or 'empty'}",
            )
    return messages


def reported(reporting: Mapping[str, Ingredient], rule: ServerRule, s: ServerState) -> dict[str, float]:
    """Return the numbers that the ingredients and the server's rule report of their memories.

    Args:
        reporting: The ingredients that report (`Method.hooks`).
        rule: The server's rule.
        s: The server's state after a round.

    Raises:
        UserCodeError: A name cannot be that of a metric or occurs twice, or a value is not a number.
    """
    everyone: list[tuple[str, Ingredient | ServerRule]] = [*reporting.items(), ("server", rule)]
    return _numbers("report", [(reporter, reporter.report(s.slots.get(slot))) for slot, reporter in everyone])


def client_reported(reporting: Mapping[str, Ingredient], models: ClientModels) -> dict[str, float]:
    """Return the numbers that these ingredients report of a client after its round, as `reported` does."""
    told = [(reporter, reporter.report_client(models.views[slot])) for slot, reporter in reporting.items()]
    return _numbers("report_client", told)


def _numbers(
    hook: str, told: Sequence[tuple[Ingredient | ServerRule, Mapping[str, float]]]
) -> dict[str, float]:
    reports: dict[str, float] = {}
    for reporter, numbers in told:
        for name, value in numbers.items():
            why = ""
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                why = f"has the name {name!r}; write it in small letters, digits and _, with a letter first"
            elif name in reports:
                why = f"has the name {name!r}, which another ingredient reports; choose another"
            elif not isinstance(value, int | float) or math.isinf(value):
                why = f"has {described(value)} for {name}; it must be a finite number or NaN: write float(…)"
            if why:
                raise fault(reporter, hook, why)
            reports[name] = float(value)
    return reports


def evaluated_broadcast(m: Method, s: ServerState) -> Broadcast:
    """Return what is evaluated as the global model.

    It is the broadcast without what is addressed, with the weights for evaluation that the server's rule
    chooses.
    """
    w = m.server.evaluation_weights(s.slots.get("server"), s.w)
    if w is not s.w:
        check_evaluated(m.name, m.server, w, s.round)
    return unaddressed(s.replace(w=w).broadcast())
