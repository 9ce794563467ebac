"""How many numbers a client holds, found by observing one step of training instead of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from raffed.core.context import ClientData, Context
from raffed.core.messages import Broadcast, count
from raffed.core.method import Method
from raffed.core.round import begin, client_round
from raffed.core.training.opening import make_opening
from raffed.core.training.phases import train
from raffed.core.training.session import Participant, TrainingSession

COPIES = {"start": "model", "state": "model", "initial": "initial", "w0": "weights", "w": "weights"}


@dataclass(frozen=True)
class Footprint:
    """How many numbers (not bytes) one client holds.

    Batches, activations, gradients and the optimiser are not counted, because they are the same for all
    methods. The state of an optimiser that the client keeps is in `kept`.

    Attributes:
        model: P, the trainable weights and BatchNorm's statistics.
        training: P and what else the shared objective reads during training: the downloaded model, this
            client's memories, the server's messages, and a companion.
        kept: What is kept from one round to the next.
    """

    model: int
    training: int
    kept: int


class _Watched:
    """A Context that records which of its fields are read."""

    def __init__(self, context: Context, asked: set[str]) -> None:
        self._context, self._asked = context, asked

    def __getattr__(self, name: str) -> Any:
        if name == "replace":
            return lambda **changes: _Watched(self._context.replace(**changes), self._asked)
        self._asked.add(name)
        return getattr(self._context, name)


def footprint(m: Method, b: Broadcast, x: torch.Tensor, session: TrainingSession) -> Footprint:
    """Return the footprint of a client at its first participation.

    Args:
        m: The method.
        b: What the server broadcasts.
        x: A few of the client's inputs [n, ...]. They are labelled 0, 1, 0, … for one step of training.
        session: How clients train.
    """
    y = torch.arange(len(x)) % 2
    classes = session.spec.num_classes
    participant = Participant(0, None, ClientData(x, y, torch.bincount(y, minlength=classes)))
    local = replace(session.local, epochs=1e-6, min_steps=1, drop_last=False)
    session = replace(session, local=local)
    visit = begin(m, b, participant, session)
    views = visit.views
    asked: dict[str, set[str]] = {slot: set() for slot in views}
    visit.views = {slot: cast(Context, _Watched(view, asked[slot])) for slot, view in views.items()}
    make_opening(m, [visit], session)
    train(m, [visit], session)
    model = count(session.net.initial)
    beside = 0 if visit.companion is None else count(visit.companion)
    once = {COPIES[name] for names in asked.values() for name in names if name in COPIES}
    copies = {"model": model, "initial": model, "weights": count(visit.k.w0)}
    training = (
        model + beside + sum(copies[name] for name in once if not (name == "weights" and "model" in once))
    )
    for slot, view in views.items():
        # A companion starts as the memory and replaces it
        memory = 0 if slot == "personal" and beside else count(view.mine)
        training += memory * ("mine" in asked[slot]) + count(view.server) * ("server" in asked[slot])
    client_state = client_round(m, b, None, participant.data, session, 0).client_state
    return Footprint(model, training, count(client_state) if m.keeps_state else 0)
