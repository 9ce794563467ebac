"""The one training loop: a stream of batches, an objective, and an optimiser."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from raffed.config.training import Local
from raffed.core.aggregation.plain_sum import plain_sum
from raffed.core.context import NOTHING, ClientData
from raffed.core.params import Params, State
from raffed.core.parts import Part
from raffed.core.record import Record
from raffed.core.training.network import Network
from raffed.core.training.optimizer_state import OptimizerState
from raffed.core.training.recorded_steps import NEVER, Inputs, KeptPhase, RecordedSteps, recorded_steps
from raffed.core.training.stepping import Solver, Stepper

Augment = Callable[[Tensor], Tensor]
UpdateGates = Callable[[Params, Params, float, Tensor], Params]
RESTING_CHUNK = 64  # samples; larger chunks leave the processor's cache


@dataclass(frozen=True)
class Trained:
    """The result of a training phase.

    Attributes:
        state: The trained model.
        loss: Mean of the objective (with all terms) over the samples seen, as they were trained.
        steps: Number of steps.
        own: The trained companion.
        carried: What the local solver ended with.
        noted: Sums of what terms noted (`Term.note`), by slot.
        optimizer: The state of the optimiser at the end, if `Solver.kept` asks for it.
        lr_sum: Sum of the rates of the steps, or None if each had the rate of the solver.
        idle: Names of the user's own terms whose value had no gradient.
    """

    state: State
    loss: float
    steps: int
    own: Params = NOTHING
    carried: Record | None = None
    noted: Mapping[str, Tensor] = field(default_factory=dict)
    optimizer: OptimizerState | None = None
    lr_sum: float | None = None
    idle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Beside:
    """A companion: parameters that are trained together with the network.

    Attributes:
        own: The parameters.
        gates: Names of those that `update_gates` moves instead of the optimiser.
        update_gates: How the gates are moved (`Personal.update_gates`).
        jointly: Whether the companion is clipped together with the network, by one norm of both.
    """

    own: Params
    gates: tuple[str, ...] = ()
    update_gates: UpdateGates | None = None
    jointly: bool = False


def batch_stream(n: int, steps: int, local: Local, generator: torch.Generator) -> list[Tensor]:
    """Return `steps` batches of indices. The data are shuffled again for every epoch."""
    batches: list[Tensor] = []
    size = local.batch_size
    used = n - n % size if local.drop_last and n >= size else n
    while len(batches) < steps:
        order = torch.randperm(n, generator=generator)
        batches.extend(
            (order if used == n else order[:used]).unsafe_split(size)
        )  # `split` would track writes, and there are none
    return batches[:steps]


def sgd(
    net: Network,
    start: State,
    objective: Callable[..., Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    solver: Solver,
    *,
    draw: Callable[[int], dict[str, Tensor]] | None = None,
    part: Part = "all",
    correct: Callable[[Params], Params] | None = None,
    after_step: Callable[[Params, float], Params] | None = None,
    augment: Augment | None = None,
    beside: Beside | None = None,
    cross_entropy_only: bool = False,
    rates: Sequence[float] | None = None,
    begun: OptimizerState | None = None,
    repeats: str = "",
) -> Trained:
    """Train a copy of `start` with one step per batch, and minimise `objective(forward, step)`.

    With `draw`, the objective gets the numbers that it returns as a third argument.

    If the layers below `part` are not trained and the images are the same in every epoch, these layers are
    applied only once.

    Args:
        net: The network.
        start: The model with which training starts.
        objective: Function from (forward pass, number of the step) to the loss.
        data: The client's training samples.
        batches: Indices of the samples in each batch.
        solver: Settings of the optimiser.
        draw: Function from the number of samples of a batch to the random numbers of its step, or None.
        part: The part of the network that is trained.
        correct: A change of the gradient before the step, or None.
        after_step: A change of the weights after the step, given them and the learning rate, or None.
        augment: A change of the images of a batch, or None.
        beside: A companion, or None. It is trained by the same solver, is clipped separately unless it says
            `jointly`, and is never corrected. Its gates have a rule of their own.
        cross_entropy_only: Whether the objective is only the cross-entropy. Some networks compute its
            gradient without a graph.
        rates: Learning rate of each step, or None for that of the solver.
        begun: State of the optimiser from which it goes on, or None to begin anew.
        repeats: If every step is the same operations on the same tensors, a name of what is trained, under
            which a GPU may record steps (recorded_steps.py). Otherwise "".
    """
    leaves = net.leaves(part)
    entrance, rested = resting_layers(net, start, data, batches, part, augment is not None)
    net.load(start)
    names, live = list(leaves), list(leaves.values())
    companion = _Companion(beside)
    weights = [p.detach() for p in (*live, *companion.stepped.values())]
    net.check_trained(weights, part)
    named = [*names, *companion.names]
    own_steps = beside is not None or correct is not None or after_step is not None
    alike = cross_entropy_only and not own_steps and draw is None and begun is None
    kept = _kept_phase(net, solver, weights, repeats, f"{part} {entrance}") if alike else None
    stepper = Stepper(solver, weights, named, begun, None if kept is None else kept.moments)
    losses: list[Tensor] = []
    direct = cross_entropy_only and net.written_out and not entrance and beside is None
    recorded = _recorded(net, solver, batches, rates, repeats) if kept is None else kept.steps

    def make(
        rate: float,
        step: int,
        x: Tensor,
        y: Tensor,
        below: Tensor | None,
        uniform: list[Tensor],
        *drawn: dict[str, Tensor],
    ) -> Tensor:
        if direct:
            loss, grads = net.gradients(x, y, names)
        else:
            with net.noise.given(uniform) if uniform else nullcontext():
                f = net.forward(x, y, below, entrance)
            loss = objective(replace(f, own=companion.params) if beside else f, step, *drawn)
            grads = list(torch.autograd.grad(loss, [*live, *companion.live], materialize_grads=True))
        grads, theirs = _bounded(grads, len(live), solver, beside)
        if correct is not None:
            changed = correct(Params(dict(zip(names, grads, strict=True)))).tensors
            grads = [changed[name] for name in names]
        grads += companion.turned(theirs, rate, step)
        stepper.step(grads, rate)
        if after_step is not None:
            moved = after_step(Params(dict(zip(names, weights, strict=False))), rate).tensors
            for name, weight in zip(names, weights, strict=False):  # the companion's come after them
                weight.copy_(moved[name])
        return loss.detach()

    for step, index in enumerate(placed(batches, data.y.device)):
        x, y = taken(data.x, index), data.y.index_select(0, index)
        below = None if rested is None else rested.index_select(0, index)
        x = x if augment is None else augment(x)
        inputs: Inputs = (x, y, below, [] if recorded is NEVER else net.dropout_draws(x))
        if draw is not None:
            inputs = (*inputs, {name: t.to(y.device) for name, t in draw(len(y)).items()})
        rate = solver.lr if rates is None else rates[step]
        stepper.begin()
        if recorded is NEVER:  # the usual case, without what small networks would notice
            losses.append(make(rate, step, *inputs))
        else:
            # A first step begins the velocity, which a recording for all clients must not mix up with others
            same = (len(y), rate) if kept is None else (len(y), rate, step == 0)
            losses.append(recorded.make(same, inputs, functools.partial(make, rate, step)))
    own = companion.params.clone() if beside else NOTHING
    return Trained(
        net.snapshot(),
        _mean_loss(losses, batches),
        len(batches),
        own,
        optimizer=stepper.state() if solver.kept else None,
    )


def _kept_phase(
    net: Network, solver: Solver, weights: list[Tensor], repeats: str, where: str
) -> KeptPhase | None:
    """Return what this phase shares with those of other clients, if its steps can be recorded."""
    if solver.kept:  # the moments are the client's own
        return None
    kind, rule = (where, replace(solver, lr=0.0)), solver.rule
    return net.kept_phases.of(net.recorder, repeats, kind, lambda: rule.begin(weights), counted=rule.counts)


def _recorded(
    net: Network, solver: Solver, batches: Sequence[Tensor], rates: Sequence[float] | None, repeats: str
) -> RecordedSteps:
    """Return how the steps of a phase are made that shares nothing with others."""

    def kinds() -> list[tuple[int, float]]:
        used = [solver.lr] * len(batches) if rates is None else rates
        return [(index.numel(), rate) for index, rate in zip(batches, used, strict=True)]

    return recorded_steps(net.recorder, repeats, kinds, counted=solver.rule.counts)


def placed(batches: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Move index batches from the CPU, where they are drawn, to the data's device, in one piece per phase."""
    if device.type == "cpu" or not batches:
        return batches
    return torch.split(torch.cat(list(batches)).to(device), [index.numel() for index in batches])


def _mean_loss(losses: list[Tensor], batches: Sequence[Tensor]) -> float:
    """Return the mean over the samples of the batches' mean losses.

    It is computed at the end, so that no step has to wait for a number.
    """
    if not losses:
        return 0.0
    sizes = [index.numel() for index in batches]
    weighed = list(map(operator.mul, torch.stack(losses).tolist(), sizes))
    # Fsum raises an error for inf − inf
    return (math.fsum if all(map(math.isfinite, weighed)) else plain_sum)(weighed) / sum(sizes)


def resting_layers(
    net: Network, start: State, data: ClientData, batches: Sequence[Tensor], part: Part, augmented: bool
) -> tuple[str, Tensor | None]:
    """Return where the steps enter the network, and what the layers below make of the client's data.

    The result is ("", None), which means at the images, with augmentation or if the steps see fewer samples
    than the client has.
    """
    entrance = "" if augmented else net.entrance(part)
    if not entrance or sum(index.numel() for index in batches) < data.n:
        return "", None
    return entrance, net.rested(start, data.x, entrance, RESTING_CHUNK)


def taken(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows x[index] in x's memory format.

    Indexing alone would turn channels-last images into channels-first ones.
    """
    if x.dim() == 4 and x.stride(1) == 1:
        return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return x.index_select(0, index)


class _Companion:
    """The live parameters of a `Beside`: first those that SGD steps, then the gates."""

    def __init__(self, beside: Beside | None) -> None:
        self._beside = beside or Beside(NOTHING)
        own = {name: t.detach().clone().requires_grad_() for name, t in self._beside.own.tensors.items()}
        self.params = Params(own)
        self.stepped = {name: t for name, t in own.items() if name not in self._beside.gates}
        self.names = [f"own.{name}" for name in self.stepped]
        self._gates = {name: own[name] for name in self._beside.gates}
        self.live = [*self.stepped.values(), *self._gates.values()]

    def turned(self, grads: list[Tensor], lr: float, step: int) -> list[Tensor]:
        """Move the gates, and return the gradients of the other parameters."""
        stepped, slope = (
            grads[: len(self.stepped)],
            dict(zip(self._gates, grads[len(self.stepped) :], strict=True)),
        )
        if self._gates and self._beside.update_gates is not None:
            now = Params({name: t.detach() for name, t in self._gates.items()})
            for name, value in self._beside.update_gates(
                now, Params(slope), lr, torch.tensor(step, device=now.device)
            ).tensors.items():
                self._gates[name].data.copy_(value)
        return stepped


def _bounded(
    grads: list[Tensor], own: int, solver: Solver, beside: Beside | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Clip the network's gradients, which are the first `own` ones, and the companion's.

    By their norm they are clipped separately or jointly.
    """
    if solver.clip_value is not None:
        grads = clipped_values(grads, solver.clip_value)
    limit = solver.clip_norm
    if limit is None:
        return grads[:own], grads[own:]
    if beside is not None and beside.jointly:
        grads = clipped(grads, limit)
        return grads[:own], grads[own:]
    return clipped(grads[:own], limit), clipped(grads[own:], limit)


def clipped(grads: list[Tensor], limit: float) -> list[Tensor]:
    """Scale gradients to a norm of at most `limit` over all of them."""
    if not grads:
        return grads
    norm = torch.nn.utils.get_total_norm(grads)
    return list(torch._foreach_mul(grads, torch.clamp(limit / (norm + 1e-6), max=1.0)))


def clipped_values(grads: list[Tensor], limit: float) -> list[Tensor]:
    """Bring every number of the gradients into [−limit, limit], as torch's `clip_grad_value_` does."""
    return [g.clamp(-limit, limit) for g in grads]


__all__ = [
    "Augment",
    "Beside",
    "Solver",
    "Trained",
    "UpdateGates",
    "batch_stream",
    "clipped",
    "clipped_values",
    "placed",
    "resting_layers",
    "sgd",
    "taken",
]
