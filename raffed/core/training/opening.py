"""The opening of a round: what clients make of the downloaded model before their passes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from raffed.core import seeds
from raffed.core.context import Forward
from raffed.core.ingredients import Opening
from raffed.core.method import Method
from raffed.core.params import State
from raffed.core.parts import Pass
from raffed.core.record import Record
from raffed.core.training.clock import batched
from raffed.core.training.first_step import trainable
from raffed.core.training.session import TrainingSession, solver_for
from raffed.core.training.sgd import batch_stream
from raffed.core.training.solver_loop import ended
from raffed.core.training.task import ClientTask, TrainingPhase, Views
from raffed.core.visit import Visit

SLOT = "opening"


def make_opening(m: Method, visits: Sequence[Visit], session: TrainingSession) -> None:
    """Make the method's opening, if it has one. All ingredients find the model after it in `k.start`."""
    opening = m.opening
    if opening is None:
        return

    def objective(f: Forward, mine: Views) -> Tensor:
        loss: Tensor = trainable(opening, "loss", opening.loss(f, mine[SLOT]))
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


__all__ = ["make_opening"]
