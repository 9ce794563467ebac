"""The opening of a round: what clients make of the downloaded model before their passes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from raffed.core import seeds
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Opening
from raffed.core.method import Method
from raffed.core.parts import Pass
from raffed.core.training.clock import batched
from raffed.core.training.first_step import trainable
from raffed.core.training.phases import check_loss, phase_of
from raffed.core.training.session import Participant, TrainingSession, solver_for
from raffed.core.training.sgd import Trained, batch_stream
from raffed.core.training.solver_loop import ended
from raffed.core.training.task import ClientTask, TrainingPhase, Views

SLOT = "opening"


def opened(
    m: Method,
    views: list[Views],
    contexts: list[Context],
    participants: Sequence[Participant],
    session: TrainingSession,
) -> tuple[list[Context], list[Views]]:
    """Return what the clients and their ingredients know after the opening; the same without an opening."""
    if m.opening is None:
        return contexts, views
    own = [mine[SLOT] for mine in views]
    done = _trained(m, m.opening, own, participants, session)
    for view, end in zip(own, done, strict=True):
        check_loss(m, view, end.loss)
    begun = [k.replace(start=end.state, state=end.state) for k, end in zip(contexts, done, strict=True)]
    known = []
    for mine, end in zip(views, done, strict=True):
        mine = {slot: k.replace(start=end.state, state=end.state) for slot, k in mine.items()}
        known.append({**mine, SLOT: mine[SLOT].replace(carried=end.carried)})
    return begun, known


def _trained(
    m: Method,
    opening: Opening,
    own: list[Context],
    participants: Sequence[Participant],
    session: TrainingSession,
) -> list[Trained]:
    """Train the clients whose opening has epochs, and return the results of all clients."""

    def objective(f: Forward, mine: Views) -> Tensor:
        loss: Tensor = trainable(opening, "loss", opening.loss(f, mine[SLOT]))
        return loss

    task = ClientTask(
        objective,
        solver_for(session.local, Pass(), own[0].lr),
        rule=opening,
        slot=SLOT,
    )
    phases = {}
    for i, (k, participant) in enumerate(zip(own, participants, strict=True)):
        if epochs := opening.epochs(k):
            phases[i] = _phase(m, opening, epochs, k, participant, session)
    ended = session.execute(session.net, task, list(phases.values()), session.augment) if phases else []
    found = dict(zip(phases, ended, strict=True))
    return [found.get(i) or _untrained(opening, k) for i, k in enumerate(own)]


def _untrained(opening: Opening, k: Context) -> Trained:
    carried = opening.begin(k)
    return Trained(ended(opening, carried, k.start), 0.0, 0, carried=carried)


def _phase(
    m: Method, opening: Opening, epochs: float, k: Context, participant: Participant, session: TrainingSession
) -> TrainingPhase:
    """Return a client's training phase. Its samples and batches come from a stream of its own."""
    stream = seeds.generator(session.seed, "opening", k.round, participant.client)
    chosen = opening.samples(participant.data.n, stream)
    local = batched(session.local, Pass(keep_singleton_batch=False), len(chosen), session.net.normalises)
    count = opening.iterations(local.steps(len(chosen), epochs)) * opening.batches()
    batches = [chosen[index] for index in batch_stream(len(chosen), count, local, stream)]
    number = len(m.passes) + 1  # private training has the number before it
    return phase_of(session, k.round, participant, k.start, batches, {SLOT: k}, number, {})


__all__ = ["opened"]
