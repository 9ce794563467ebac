"""Stacked forward passes, and stacked execution of a method's own local solver (Per-FedAvg, pFedMe).

Its step runs under vmap, and gradients are taken by torch.func.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils import _pytree as pytree

from raffed.core.context import Forward
from raffed.core.params import Params, Record, State
from raffed.core.stacked.batches import (
    Batches,
    Leaf,
    Stacked,
    StackedMemory,
    StackedStep,
    Tensors,
    one_or_all,
    pick_of,
    stacked_records,
    stacked_steps,
    taken_leaves,
)
from raffed.core.training.network import Network
from raffed.core.training.optimizers import Scalar
from raffed.core.training.recorded_steps import recorded_steps
from raffed.core.training.sgd import ended, used, with_own_memory
from raffed.core.training.task import ClientTask, Trained, TrainingPhase, name_of, with_draws
from raffed.errors import UsageError

# The forward pass of stacked clients, whose weights are arguments and not those of the network.


class StackedForward:
    """The training pass of a network for clients whose weights are arguments.

    Args:
        net: The network. Its own weights are not used.

    Raises:
        UsageError: The network has recurrent layers of torch, which `vmap` cannot compute.
    """

    def __init__(self, net: Network) -> None:
        if (recurrent := net.recurrent) is not None:
            raise UsageError(
                f"torch cannot stack networks with a layer of type {type(recurrent).__name__}; use cohort = 0"
            )
        self._pass = net.functional

    def of_all(self, w: dict[str, Tensor], x: Tensor) -> tuple[Tensor, ...]:
        """Return (logits [g, B, C], z [g, B, D]) of g clients' batches x [g, B, ...], computed outside vmap.

        The result is () if the network is not a chain of linear layers.
        """
        chain = self._pass.chain
        if chain is None:
            return ()
        with self._pass.cast():
            logits, z = chain.stacked(w, x)
        return self._pass.full(logits, z)

    def gradients_of_all(
        self, w: dict[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return cross-entropies [g] of g clients, and gradients for their weights [g, ...].

        It may be called if the network is `written_out`. The batches are x [g, B, ...] and y [g, B].
        """
        assert self._pass.chain is not None
        return self._pass.chain.stacked_gradients(w, x, y, names)

    def of_one(
        self,
        w: dict[str, Tensor],
        b: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        drawn: list[Tensor],
        rested: Tensor | None = None,
        entrance: str = "",
        outputs: tuple[Tensor, ...] = (),
    ) -> Forward:
        """Make one client's training pass, inside vmap. BatchNorm updates `b` in place.

        Args:
            w: Weights by name.
            b: Buffers by name.
            x: Inputs [B, ...].
            y: Labels [B].
            drawn: Uniform random numbers of the dropout layers, in the order of `Network.noise_shapes`.
            rested: What the layers below `entrance` have made of x, or None.
            entrance: Where the pass enters the network.
            outputs: (logits, z) from `of_all`, or () if they have to be computed.
        """
        if outputs:
            logits, z = outputs
        elif rested is None:
            logits, z = self._pass.called({**w, **b}, x, drawn)
        else:
            with self._pass.cast():
                logits, z = self._pass.entered(rested, entrance, w)
            logits, z = self._pass.full(logits, z)
        return Forward(x, y, z, logits, Params(w), through=lambda other: self._pass.again(other, b, x, drawn))


Labelled = tuple[Tensor, Tensor]  # inputs and their labels


class RuleStack:
    """What a local solver carries for k clients that are stepped together."""

    def __init__(
        self, net: Network, task: ClientTask, members: list[TrainingPhase], batches: Batches
    ) -> None:
        assert task.rule is not None
        self.net, self.task, self.rule, self.members, self.batches = net, task, task.rule, members, batches
        self.forward = StackedForward(net)
        net.leaves("all")
        self.memory = StackedMemory([member.views for member in members])
        begun = [task.rule.begin(member.views[task.slot]) for member in members]
        leaves, self._spec = stacked_records(begun)
        k = len(members)
        self._carried = [_for_each(leaf, k) for leaf in leaves]
        self._calls = self._counted(begun[0])
        self._losses: list[list[Tensor]] = [[] for _ in members]
        self.recorded = recorded_steps(
            net.recorder,
            name_of(task, members, stacked=True),
            lambda: [step.kind(self._rate(step)) for step in stacked_steps(batches.sizes)],
        )

    def _counted(self, carried: Record) -> list[int]:
        """Return on which of the step's batches each gradient of one step is taken, in order.

        With this the random numbers of the passes can be drawn beforehand.
        """
        calls: list[int] = []

        def gradient(state: State, which: int) -> tuple[Params, Params]:
            calls.append(which)
            return state.w.zeros(), state.b

        self.rule.step(carried, gradient, self.members[0].views[self.task.slot])
        return calls

    def step(self, step: StackedStep) -> None:
        """Make one step of the local solver for the members of a stacked step."""
        ready = [self.batches.take(step, which) for which in range(self.batches.per_step)]
        uniform = [self.batches.uniform(step, ready[which][0]) for which in self._calls]
        drawn = [self.batches.drawn(self.task, step, which) for which in self._calls]
        lr = self._rate(step)
        make = functools.partial(self._make, step, lr)
        losses = self.recorded.make(step.kind(lr), (ready, uniform, drawn), make)
        for i, row in zip(step.members, losses, strict=True):
            self._losses[i].append(row)

    def _make(
        self,
        step: StackedStep,
        lr: Scalar | None,
        ready: list[Labelled],
        uniform: list[list[Tensor]],
        drawn: list[Tensors],
    ) -> Tensor:
        pick = pick_of(step.members, step.is_prefix, self.net.device)
        memory, carried = self.memory.taken(pick), taken_leaves(self._carried, pick)

        def one_client(
            carried: list[Leaf],
            ready: list[Labelled],
            uniform: list[list[Tensor]],
            drawn: list[Tensors],
            mine: list[Leaf],
            lr: Scalar | None,
        ) -> tuple[list[Tensor], Tensor]:
            gradient = _Gradient(self, ready, uniform, drawn, mine)
            view = self.memory.views(mine)[self.task.slot]
            view = view if lr is None else view.replace(lr=lr)
            after = self.rule.step(pytree.tree_unflatten(carried, self._spec), gradient, view)
            return pytree.tree_leaves(after), torch.stack(gradient.losses)

        together: Callable[..., tuple[list[Tensor], Tensor]] = vmap(
            one_client, in_dims=(0, 0, 0, 0, memory.dims, 0 if isinstance(lr, Tensor) else None)
        )
        after, losses = together(carried.leaves, ready, uniform, drawn, memory.leaves, lr)
        for whole, part in zip(self._carried, after, strict=True):
            whole.all[pick] = part.detach()
        return losses.detach()

    def _rate(self, step: StackedStep) -> Scalar | None:
        """Return the rate of a step if rates change within the round."""
        rows = zip((self.members[i].rates for i in step.members), step.steps, strict=True)
        rates = [member_rates[number] for member_rates, number in rows if member_rates is not None]
        if not rates:
            return None
        rate = one_or_all(rates)
        return rate.to(self.net.device) if isinstance(rate, Tensor) else rate

    def results(self) -> list[Trained]:
        """Return each member's trained model, and what its local solver ended with."""
        done = []
        for i, (member, losses) in enumerate(zip(self.members, self._losses, strict=True)):
            carried = pytree.tree_unflatten([leaf.all[i] for leaf in self._carried], self._spec)
            carried = with_own_memory(carried)  # in one buffer, as execution one by one does
            loss = float(torch.cat(losses).mean()) if losses else 0.0
            state = ended(self.rule, carried, member.start)
            done.append(Trained(state, loss, len(member.batches), carried=carried))
        return done


class _Gradient:
    """The gradient of one client's objective inside vmap. It also keeps the losses."""

    def __init__(
        self,
        stack: RuleStack,
        ready: list[Labelled],
        uniform: list[list[Tensor]],
        drawn: list[Tensors],
        mine: list[Leaf],
    ) -> None:
        self._stack, self._ready, self._uniform, self._drawn, self._mine = stack, ready, uniform, drawn, mine
        self.losses: list[Tensor] = []

    def __call__(self, state: State, which: int) -> tuple[Params, Params]:
        stack, call = self._stack, len(self.losses)
        x, y = self._ready[which]

        def value(moved: Tensors) -> tuple[Tensor, tuple[Tensor, Tensors]]:
            w = {**state.w.tensors, **moved}
            b = {name: tensor.clone() for name, tensor in state.b.tensors.items()}
            f = stack.forward.of_one(w, b, x, y, self._uniform[call])
            loss = stack.task.objective(f, with_draws(stack.memory.views(self._mine), self._drawn[call]))
            return loss, (loss, b)

        moved = used(stack.rule, state.w.tensors, stack.task.solver)
        slope, (loss, b) = grad(value, has_aux=True)(moved)
        self.losses.append(loss.detach())
        largest, limit = stack.task.solver.clip_value, stack.task.solver.clip_norm
        if largest is not None:
            slope = {name: g.clamp(-largest, largest) for name, g in slope.items()}
        if limit is not None:
            norm = torch.stack([g.square().sum() for g in slope.values()]).sum().sqrt()
            slope = {name: g * torch.clamp(limit / (norm + 1e-6), max=1.0) for name, g in slope.items()}
        return Params(slope), Params(b)


def _for_each(leaf: Stacked | Leaf, k: int) -> Stacked:
    """Return a leaf of what a local solver carries with one entry for each of k clients."""
    if isinstance(leaf, Stacked):
        return leaf
    if not isinstance(leaf, Tensor):
        raise TypeError(
            f"a local solver may only carry records of tensors, but this one holds a {type(leaf).__name__}"
        )
    return Stacked(leaf[None].repeat(k, *(1,) * leaf.dim()))
