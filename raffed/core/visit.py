"""One client in one round: what it and its ingredients know, and how far its training has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import plain_sum
from raffed.core.context import NOTHING, Context
from raffed.core.params import Params, Record, State
from raffed.core.training.optimizer_state import OptimizerMemory
from raffed.core.training.session import ClientClock, Participant, TrainingSession
from raffed.core.training.task import Trained, TrainingPhase, Views, add_notes
from raffed.errors import NumericsError

OPTIMIZER = "optimizer"  # the slot of `Method.optimizer`


@dataclass(kw_only=True)
class Visit:
    """One client in one round, from the download to the upload.

    The stages of a round (core/round.py) change it in place, one after the other. The contexts, models and
    memories in it are never changed, only replaced.

    Attributes:
        participant: The client, with its data and its client state.
        clock: Its numbers of steps and learning rates in this round.
        downloaded: The model as downloaded, joined with the client's own layers.
        k: What the client knows.
        views: What each of its ingredients knows, by slot.
        loss: Mean of the objective over the samples seen in shared training.
        idle: Names of the user's own terms whose value had no gradient.
        streams: Random streams of the terms that draw, by slot. They continue from pass to pass.
        companion: Parameters that are trained together with the network, or None.
        noted: Sums of what terms noted (`Term.note`), by slot.
    """

    participant: Participant
    clock: ClientClock
    downloaded: State
    k: Context
    views: Views
    loss: float = 0.0
    idle: tuple[str, ...] = ()
    streams: dict[str, torch.Generator] = field(default_factory=dict)
    companion: Params | None = None
    noted: dict[str, Tensor] = field(default_factory=dict)

    def tell(self, **facts: Any) -> None:
        """Replace fields of what the client and all its ingredients know."""
        self.k = self.k.replace(**facts)
        self.views = {slot: view.replace(**facts) for slot, view in self.views.items()}

    def tell_one(self, slot: str, **facts: Any) -> None:
        """Replace fields of what one ingredient knows."""
        self.views = {**self.views, slot: self.views[slot].replace(**facts)}

    def phase(
        self,
        session: TrainingSession,
        start: State,
        batches: list[Tensor],
        number: int,
        *,
        views: Views | None = None,
        companion: Params | None = None,
        drawn: Mapping[str, torch.Generator] | None = None,
        rates: list[float] | None = None,
        optimizer: str = "",
    ) -> TrainingPhase:
        """Return one phase of the client's training. Dropout and augmentation have their own derived streams.

        Args:
            session: How clients train.
            start: The model with which it begins.
            batches: Indices of the samples in each batch.
            number: Number of the phase, from which its random streams are derived.
            views: What the ingredients know that take part, or None for all of them. The state of the
                optimiser is left out, because no objective reads it.
            companion: The companion, or None.
            drawn: Random streams of the terms that draw.
            rates: Learning rate of each step, or None for that of the solver.
            optimizer: Name under which the state of the optimiser is kept from round to round.
        """
        key, net = (self.k.round, self.k.client, number), session.net
        augments = session.augment is not None
        known = self.views if views is None else views
        kept = self.views[OPTIMIZER].mine if OPTIMIZER in self.views else None
        return TrainingPhase(
            start,
            batches,
            self.participant.data,
            {slot: view for slot, view in known.items() if slot != OPTIMIZER},
            companion,
            augment=seeds.generator(session.seed, "augment", *key) if augments else None,
            dropout=seeds.generator_on(net.device, session.seed, "dropout", *key)
            if net.has_dropout
            else None,
            drawn=drawn or {},
            rates=rates,
            optimizer=kept.phases.get(optimizer) if isinstance(kept, OptimizerMemory) else None,
        )

    def passed(self, phase: TrainingPhase, end: Trained) -> None:
        """Add a pass of shared training that has ended. Until `trained`, `loss` is a sum over the steps."""
        k, steps = self.k, self.k.steps + end.steps
        lr_sum = steps * k.lr if phase.rates is None else k.lr_sum + plain_sum(phase.rates)
        self.k = k.replace(state=end.state, steps=steps, lr_sum=lr_sum)
        self.loss += end.loss * end.steps
        self.companion = None if self.companion is None else end.own
        add_notes(self.noted, end.noted)

    def trained(self, carried: Record | None = None) -> None:
        """Tell the ingredients what has come of shared training.

        Args:
            carried: What the method's local solver ended with.
        """
        self.tell(state=self.k.state, steps=self.k.steps, lr_sum=self.k.lr_sum)
        for slot, value in self.noted.items():
            self.tell_one(slot, noted=value)
        if "personal" in self.views:
            companion = NOTHING if self.companion is None else self.companion
            self.tell_one("personal", own=companion, carried=carried)

    def keep_optimizer(self, phase: str, end: Trained) -> None:
        """Keep the state of the optimiser with which a phase has ended, if the run asks for it."""
        if OPTIMIZER in self.views and end.optimizer is not None:
            phases = {**self.views[OPTIMIZER].mine.phases, phase: end.optimizer}
            self.tell_one(OPTIMIZER, mine=OptimizerMemory(phases))

    def check_loss(self, method: str, loss: float) -> None:
        """Refuse a training loss that is not finite.

        Raises:
            NumericsError: The loss is not finite. The message names the client and the round.
        """
        if not math.isfinite(loss):
            raise NumericsError(
                f"{method}: the training loss of client {self.k.client} in round {self.k.round + 1} is "
                f"{loss}; the rounds before are kept: try a smaller lr, or clip_norm"
            )
