"""Stacked execution: k clients with the same network are stepped together by `torch.func.vmap`.

See docs/design.md §1. The results equal those of `one_by_one` up to the rounding of batched kernels, and come
from the same random streams.

Clients of unequal size are not padded. Every stacked step advances the largest group of clients whose next
batches have equal size. So ingredients need no masks, BatchNorm sees no padding, and no arithmetic is wasted.
A client waits while its batch size is rare. Which clients step together depends only on their sizes, so a
stack gives the same bits wherever it is computed.

The forward pass runs under vmap. A network of linear layers (core/kernels/linear.py) is computed
outside vmap. The backward pass is plain autograd of the sum of the losses, whose gradient with respect to a
client's weights is that client's own gradient. For the cross-entropy of a network of linear layers, it is
written out.

Each tensor's weights lie in one block [k, ...], and the clients that still run are the first ones of it. So
they are selected by a view and not by a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from raffed.core.losses import cross_entropy
from raffed.core.params import Layout, Params, State
from raffed.core.stacked.batches import (
    Batches,
    Leaf,
    StackedMemory,
    StackedStep,
    StackedSteps,
    Taken,
    Tensors,
    pick_of,
    put_back,
    stacked_params,
    stacked_steps,
    taken_from,
    unstacked,
)
from raffed.core.stacked.solver_executor import RuleStack, StackedForward
from raffed.core.training.network import Network
from raffed.core.training.optimizers import Scalar
from raffed.core.training.recorded_steps import recorded_steps
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    OptimizerState,
    Trained,
    TrainingPhase,
    name_of,
    notes_of,
    with_draws,
)

Outputs = tuple[Tensor, ...]  # logits and z of a batch, or nothing


class StackedBatch(NamedTuple):
    """What a stacked step of g clients gets that is another in every step.

    Attributes:
        x: Inputs [g, B, ...].
        y: Labels [g, B].
        rested: What the untrained layers make of x, one tensor [g, B, ...], or nothing.
        uniform: Random numbers of the dropout layers, each [g, ...].
        drawn: Random numbers of the terms by slot, each [g, ...].
    """

    x: Tensor
    y: Tensor
    rested: list[Tensor]
    uniform: list[Tensor]
    drawn: Tensors


def stacked(
    net: Network, task: ClientTask, phases: Sequence[TrainingPhase], augmentation: Augmentation | None
) -> list[Trained]:
    """Train all phases as one stack, and return the results in the given order."""
    # So that the clients that still run come first
    order = sorted(range(len(phases)), key=lambda i: -len(phases[i].batches))
    members = [phases[i] for i in order]
    batches = Batches(net, members, 1 if task.rule is None else task.rule.batches(), augmentation)
    stack: SgdStack | RuleStack
    stack = (
        SgdStack(net, task, members, batches) if task.rule is None else RuleStack(net, task, members, batches)
    )
    for step in stacked_steps(batches.sizes):
        stack.step(step)
    done = stack.results()
    back = sorted(range(len(order)), key=order.__getitem__)
    return [done[i] for i in back]


class SgdStack:
    """Weights, companions, optimisers, buffers and memories of k clients that step together."""

    def __init__(
        self, net: Network, task: ClientTask, members: list[TrainingPhase], batches: Batches
    ) -> None:
        self.net, self.task, self.members, self.batches = net, task, members, batches
        self.forward = StackedForward(net)
        names = net.leaves(task.part)  # also freezes BatchNorm if the body is not trained
        self.entrance = batches.rest(task.part)
        w = stacked_params([phase.start.w for phase in members])
        self.b = stacked_params([phase.start.b for phase in members])
        self.live = {name: tensor for name, tensor in w.items() if name in names}
        self.rest = {name: tensor for name, tensor in w.items() if name not in names}
        self.own = stacked_params([phase.own if phase.own is not None else Params({}) for phase in members])
        self._stepped = [name for name in self.own if name not in task.gates]
        moving = {**self.live, **{f"own.{name}": self.own[name] for name in self._stepped}}
        net.check_trained(moving.values(), task.part)
        self.steps = StackedSteps(task.solver, moving, members)
        self.loss = torch.zeros(len(members), dtype=torch.float64, device=net.device)
        self.memory = StackedMemory([phase.views for phase in members])
        self.noted: Tensors = {}  # slot → [k, ...]
        self.recorded = recorded_steps(
            net.recorder,
            name_of(task, members, stacked=True),
            lambda: [step.kind(self.steps.rate(step)) for step in stacked_steps(batches.sizes)],
            counted=task.solver.rule.counts,
        )

    def step(self, step: StackedStep) -> None:
        """Make one stacked step.

        It selects the members, makes one forward pass under vmap and one backward pass, and updates the
        weights.
        """
        lr = self.steps.rate(step)
        self.steps.begin(step)
        x, y = self.batches.take(step, 0)
        drawn = self.batches.uniform(step, x), self.batches.drawn(self.task, step, 0)
        inputs = (StackedBatch(x, y, self.batches.rested(step), *drawn),)
        self.recorded.make(step.kind(lr), inputs, functools.partial(self._make, step, lr))

    def _make(self, step: StackedStep, lr: Scalar, batch: StackedBatch) -> Tensor:
        pick = pick_of(step.members, step.is_prefix, self.net.device)
        live, companion, b = (taken_from(group, pick) for group in (self.live, self.own, self.b))
        memory = self.memory.taken(pick)
        rest = taken_from(self.rest, pick)
        losses, mine, theirs = self._gradients(live, rest, companion, b, memory, step, batch)
        mine, theirs = self._bounded(mine, theirs)
        moving = [*live.values(), *(companion[name] for name in self._stepped)]
        changed = [*self._corrected(mine, live, memory), *(theirs[name] for name in self._stepped)]
        self._update_gates(companion, theirs, step, lr)
        self.steps.step(moving, changed, step, pick, lr)
        self._move_after_step(live, memory, lr)
        if not step.is_prefix:
            for whole, part in ((self.live, live), (self.own, companion), (self.b, b)):
                put_back(whole, part, pick)
        self.loss[pick] += losses.detach().double() * step.batch[0]
        return losses.detach()

    def results(self) -> list[Trained]:
        """Return each member's own model, companion and mean loss."""
        k = len(self.members)
        weights = unstacked({**self.live, **self.rest}, self.net.w_layout, k)
        buffers = unstacked(self.b, self.net.b_layout, k)
        owns = unstacked(self.own, Layout.of({name: t[0] for name, t in self.own.items()}), k)
        done = []
        kept: list[OptimizerState | None] = self.steps.states() if self.task.solver.kept else [None] * k
        rows = zip(self.members, weights, buffers, owns, self.loss.tolist(), kept, strict=True)
        for i, (member, w, b, beside, total, state) in enumerate(rows):
            seen = sum(index.numel() for index in member.batches)
            noted = {slot: sums[i].clone() for slot, sums in self.noted.items()}
            loss = total / seen if seen else 0.0
            done.append(Trained(State(w, b), loss, len(member.batches), beside, noted=noted, optimizer=state))
        return done

    def _gradients(
        self,
        live: Tensors,
        rest: Tensors,
        companion: Tensors,
        b: Tensors,
        memory: Taken,
        step: StackedStep,
        batch: StackedBatch,
    ) -> tuple[Tensor, Tensors, Tensors]:
        """Return each client's loss [g], and the gradients of its own weights and of its companion."""
        if self.task.cross_entropy_only and self.net.written_out and not (companion or self.entrance):
            losses, slopes = self.forward.gradients_of_all({**rest, **live}, batch.x, batch.y, list(live))
            return losses, dict(zip(live, slopes, strict=True)), {}
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in live.items()}
        beside = {name: tensor.detach().requires_grad_() for name, tensor in companion.items()}
        losses = self._losses({**rest, **leaves}, beside, b, memory, step, batch)
        grads = torch.autograd.grad(
            losses.sum(), [*leaves.values(), *beside.values()], materialize_grads=True
        )
        mine = dict(zip(leaves, grads[: len(leaves)], strict=True))
        return losses, mine, dict(zip(beside, grads[len(leaves) :], strict=True))

    def _losses(
        self,
        w: Tensors,
        companion: Tensors,
        b: Tensors,
        memory: Taken,
        step: StackedStep,
        batch: StackedBatch,
    ) -> Tensor:
        outputs = () if batch.rested else self.forward.of_all(w, batch.x)
        if outputs and self.task.cross_entropy_only:
            return cross_entropy(outputs[0], batch.y)

        def loss(
            w: Tensors,
            beside: Tensors,
            b: Tensors,
            batch: StackedBatch,
            outputs: Outputs,
            leaves: list[Leaf],
        ) -> tuple[Tensor, Tensors]:
            x, y, below, noise, drawn = batch
            f = self.forward.of_one(w, b, x, y, noise, below[0] if below else None, self.entrance, outputs)
            f = replace(f, own=Params(beside)) if beside else f
            views = self.memory.views(leaves)
            return self.task.objective(f, with_draws(views, drawn)), notes_of(self.task, f, views)

        together: Callable[..., tuple[Tensor, Tensors]] = vmap(loss, in_dims=(0, 0, 0, 0, 0, memory.dims))
        losses, noted = together(w, companion, b, batch, outputs, memory.leaves)
        self._note(noted, step)
        return losses

    def _note(self, noted: Tensors, step: StackedStep) -> None:
        """Add what the terms note in this step to the sums of the members."""
        pick = pick_of(step.members, step.is_prefix, self.net.device)
        for slot, value in noted.items():
            if slot not in self.noted:
                self.noted[slot] = value.new_zeros(len(self.members), *value.shape[1:])
            self.noted[slot][pick] += value

    def _bounded(self, mine: Tensors, theirs: Tensors) -> tuple[Tensors, Tensors]:
        """Clip each client's gradients and its companion's: by value, then by norm.

        By their norm they are clipped separately or jointly.
        """
        value, limit = self.task.solver.clip_value, self.task.solver.clip_norm
        if value is not None:
            mine, theirs = (
                {name: g.clamp(-value, value) for name, g in group.items()} for group in (mine, theirs)
            )
        if limit is None:
            return mine, theirs
        if not self.task.jointly:
            return clip_stacked_gradients(mine, limit), clip_stacked_gradients(theirs, limit)
        kept = list(
            clip_stacked_gradients(
                {str(i): g for i, g in enumerate([*mine.values(), *theirs.values()])}, limit
            ).values()
        )
        return dict(zip(mine, kept, strict=False)), dict(zip(theirs, kept[len(mine) :], strict=True))

    def _corrected(self, grads: Tensors, live: Tensors, memory: Taken) -> list[Tensor]:
        correct = self.task.correct
        if correct is None:
            return list(grads.values())

        def one_client(g: Tensors, w: Tensors, mine: list[Leaf]) -> Tensors:
            return correct(Params(g), Params(w), self.memory.views(mine)).tensors

        together: Callable[..., Tensors] = vmap(one_client, in_dims=(0, 0, memory.dims))
        changed = together(grads, live, memory.leaves)
        return [changed[name] for name in grads]

    def _move_after_step(self, live: Tensors, memory: Taken, lr: Scalar) -> None:
        """Move the weights as the method's correction asks, after the optimiser's step."""
        after_step = self.task.after_step
        if after_step is None:
            return

        def one_client(w: Tensors, lr: float | Tensor, mine: list[Leaf]) -> Tensors:
            return after_step(Params(w), lr, self.memory.views(mine)).tensors

        if isinstance(lr, Tensor):
            lr = lr.to(self.net.device)
        dims = (0, 0 if isinstance(lr, Tensor) else None, memory.dims)
        together: Callable[..., Tensors] = vmap(one_client, in_dims=dims)
        moved = together(live, lr, memory.leaves)
        for name, weights in live.items():
            weights.copy_(moved[name])

    def _update_gates(self, companion: Tensors, gradients: Tensors, step: StackedStep, lr: Scalar) -> None:
        """Move the gates by their own rule. The members of a stacked step may be at different steps."""
        update_gates, gates = self.task.update_gates, self.task.gates
        if update_gates is None or not self.own or not gates:
            return

        def one_client(values: Tensors, slope: Tensors, number: Tensor, lr: float) -> Tensors:
            return update_gates(Params(values), Params(slope), lr, number).tensors

        steps = torch.tensor(step.steps, device=self.net.device)
        dims = (0, 0, 0, 0 if isinstance(lr, Tensor) else None)
        if isinstance(lr, Tensor):
            lr = lr.to(self.net.device)
        together: Callable[..., Tensors] = vmap(one_client, in_dims=dims)
        now = together({n: companion[n] for n in gates}, {n: gradients[n] for n in gates}, steps, lr)
        for name in gates:
            companion[name].copy_(now[name])


def clip_stacked_gradients(grads: Tensors, limit: float) -> Tensors:
    """Scale each client's gradients [g, ...] to a norm of at most `limit` over all of its tensors."""
    if not grads:
        return grads
    square = torch.stack([g.flatten(1).square().sum(1) for g in grads.values()]).sum(0)  # [g]
    scale = torch.clamp(limit / (square.sqrt() + 1e-6), max=1.0)
    return {name: g * scale.view(-1, *(1,) * (g.dim() - 1)) for name, g in grads.items()}
