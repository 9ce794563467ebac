"""How strong the terms of a method are: their gradients relative to that of the cross-entropy, in the body.

A term whose gradient is a few per cent of the cross-entropy's hardly changes what is learned, so a run of it
says little about the method. It is measured at the model with which a client's training starts, and at the
one with which it ends, on the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.context import NOTHING, Forward
from raffed.core.ingredients import Term
from raffed.core.measures.scores import ExtraMeasure
from raffed.core.messages import Broadcast
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import in_part
from raffed.core.round import ClientRound, begin
from raffed.core.training import seeded_dropout
from raffed.core.training.network import Network
from raffed.core.training.objective import ObjectiveParts, objective_parts
from raffed.core.training.phases import make_opening
from raffed.core.training.session import Participant, TrainingSession
from raffed.core.training.task import Views, with_draws

BATCHES = 8  # at most so many of a client in one measurement
ALL = "all"  # all terms together

# x, y, random numbers of the terms, random numbers of the dropout layers
MeasuredBatch = tuple[Tensor, Tensor, dict[str, Tensor], list[Tensor]]
Strengths = dict[tuple[str, str], ExtraMeasure]


def term_strengths(
    m: Method, b: Broadcast, participant: Participant, done: ClientRound, session: TrainingSession
) -> Strengths:
    """Return the strength of a method's terms at the start and at the end of a client's training.

    The strength of a term is Σ ‖its gradient‖ / Σ ‖gradient of the loss that it is added to‖ over the same
    batches, each with its weight. That loss is the cross-entropy, or what a head of the method or `--loss`
    puts in its place. The gradients are those of the shared layers below the head that the terms train. A
    method that shares none has its own layers below the head measured, and a network without any such layer
    the head. Nothing is changed, and no random stream of training is used.

    Args:
        m: The method.
        b: What the server broadcast.
        participant: The client, with its state before the round.
        done: The client's round.
        session: How clients train.

    Returns:
        (model, term) → strength, and the number of batches. The model is "global" at the start of training
        and "local" at its end. "all" is the sum of all terms. There is nothing for a method without terms,
        and where a batch cannot be made, which is a single sample with BatchNorm. NaN: the cross-entropy has
        no gradient.
    """
    parts, net = objective_parts(m, session.local.label_smoothing), session.net
    if parts.empty:
        return {}
    visit = begin(m, b, participant, session)
    if m.opening is not None:
        make_opening(m, [visit], session)
    k, views = visit.k, visit.views
    net.leaves("all")  # the layers are in training mode
    batches = list(_batches(parts.terms, participant, session, k.round, views))
    if not batches:
        return {}
    names = measured_names(m, net)
    companion = m.personal.companion(views["personal"]) if m.personal is not None else None
    trained = done.views["personal"].own if m.personal is not None else NOTHING
    models = {"global": (k.start, companion or NOTHING), "local": (done.trained, trained)}
    return {
        (model, term): ExtraMeasure(value, len(batches))
        for model, (state, beside) in models.items()
        for term, value in _strengths(parts, net, state, beside, batches, views, names).items()
    }


def measured_names(m: Method, net: Network) -> tuple[str, ...]:
    """Return the parameters whose gradients are compared: shared ones below the head that terms train."""
    w, norms = net.initial.w, net.norm_names
    active = [pass_ for pass_ in m.passes if not pass_.cross_entropy_only]
    trained = tuple(n for n in w.names if any(in_part(n, pass_.part, norms) for pass_ in active))
    below = tuple(n for n in trained if not in_part(n, "head"))
    sent = set(m.split.shared(w, norms).names)
    return tuple(n for n in below if n in sent) or below or trained


def _strengths(
    parts: ObjectiveParts,
    net: Network,
    state: State,
    beside: Params,
    batches: list[MeasuredBatch],
    views: Views,
    names: tuple[str, ...],
) -> dict[str, float]:
    """Return the strength of every term, and of all together, at one model."""
    base, sums = 0.0, dict[str, float]()
    for x, y, drawn, uniform in batches:
        w = {name: t.detach().clone().requires_grad_(name in names) for name, t in state.w.tensors.items()}
        live, seen = [w[name] for name in names], with_draws(views, drawn)
        f = _forward(net, w, state.b, beside, x, y, uniform)
        base += _norm(_gradient(parts.base(f, seen), live))
        total = [torch.zeros_like(t) for t in live]
        for term, value in parts.added(f, seen).items():
            slope = _gradient(value, live)
            sums[term] = sums.get(term, 0.0) + _norm(slope)
            total = [a + b for a, b in zip(total, slope, strict=True)]
        sums[ALL] = sums.get(ALL, 0.0) + _norm(total)
    return {term: norm / base if base else math.nan for term, norm in sums.items()}


def _forward(
    net: Network, w: dict[str, Tensor], b: Params, beside: Params, x: Tensor, y: Tensor, uniform: list[Tensor]
) -> Forward:
    """Make a training pass of a model that is not the live one. BatchNorm changes only a copy."""
    logits, z = net.functional.again(Params(w), b.tensors, x, uniform)
    return Forward(
        x,
        y,
        z,
        logits,
        Params(w),
        own=beside,
        through=lambda other: net.functional.again(other, b.tensors, x, uniform),
    )


def _gradient(value: Tensor, live: list[Tensor]) -> list[Tensor]:
    """Return the gradient of a value; zeros if it does not depend on the parameters."""
    if not value.requires_grad:
        return [torch.zeros_like(t) for t in live]
    return list(torch.autograd.grad(value, live, retain_graph=True, materialize_grads=True))


def _norm(gradient: list[Tensor]) -> float:
    return float(torch.nn.utils.get_total_norm(gradient)) if gradient else 0.0


def _batches(
    terms: Iterable[tuple[str, Term]],
    participant: Participant,
    session: TrainingSession,
    round: int,
    views: Views,
) -> Iterator[MeasuredBatch]:
    """Yield a few of the client's batches, with the random numbers of terms and of dropout.

    Everything comes from one stream of its own. Images are not augmented.
    """
    data, net = participant.data, session.net
    size = min(session.local.batch_size, data.n)
    if size < 1 + net.normalises:
        return
    stream = seeds.generator(session.seed, "strength", round, participant.client)
    order = torch.randperm(data.n, generator=stream)
    drawing = {slot: term for slot, term in terms if term.purpose is not None}
    for index in torch.split(order[: data.n - data.n % size], size)[:BATCHES]:
        at = index.to(data.y.device)
        x, y = net.arranged(data.x.index_select(0, at)), data.y.index_select(0, at)
        draws = {slot: term.draw(size, views[slot], stream) for slot, term in drawing.items()}
        drawn = {slot: value for slot, value in draws.items() if value is not None}
        shapes = net.noise_shapes(x)
        uniform = [noise.to(x.device) for noise in seeded_dropout.draw(shapes, stream)] if shapes else []
        yield x, y, drawn, uniform
