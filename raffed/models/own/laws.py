"""What a network of one's own must keep to, so that runs are reproducible. Checked before any work begins.

Each check computes a few batches of two or three samples. It refuses with one sentence that says what to do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from raffed.core.losses import cross_entropy
from raffed.core.seeds import forked
from raffed.core.stacked.solver_executor import StackedForward
from raffed.core.training.network import Network
from raffed.errors import RaffedError, UsageError
from raffed.models.net import Net
from raffed.models.own.wrapping import NOT_REPEATED, ModelInputs, one_tensor, own_errors

# A few steps of a network, as raffed trains it: alone, and stacked with an equal one.


Pass = tuple[Tensor, dict[str, Tensor]]  # the loss of a batch, and its gradients by name


class NetworkTrial:
    """A copy of a network on which steps are tried.

    Each step begins from the same weights, and raffed's own random numbers are the same in each.

    Args:
        net: The network. It is not changed.
        title: How messages name it.
        double: Whether to compute in float64.
    """

    def __init__(self, net: Net, title: str, *, double: bool = False) -> None:
        self.title = title
        with own_errors(title):
            copied = copy.deepcopy(net)
            self.network = Network(
                copied.double() if double else copied, kernels=net.rewritable, constants=net.constants
            )

    def scores(self, x: Tensor, training: bool) -> Tensor:
        """Return the scores of a batch in training or evaluation mode."""
        module = self.network.module
        self.network.noise.generator = torch.Generator().manual_seed(0)
        with torch.no_grad(), forked(0), own_errors(self.title):
            try:
                scores = module.train(training)(self.network.arranged(x))[0]
            finally:
                module.train()
                self.network.load(self.network.initial)
        return one_tensor(scores, self.title)

    def trained(self, x: Tensor, y: Tensor, seed: int) -> Pass:
        """Return the loss of a batch and its gradients. Random numbers of raffed's are the same each time.

        Those of torch's global generator depend on `seed`.
        """
        self.network.load(self.network.initial)
        self.network.noise.generator = torch.Generator().manual_seed(0)
        leaves = self.network.leaves("all")
        with forked(seed), own_errors(self.title):
            loss = cross_entropy(self.network.forward(x, y).logits, y)
            gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        self.network.load(self.network.initial)
        return loss.detach(), dict(zip(leaves, gradients, strict=True))

    def stacked(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Return the gradients of two clients with equal weights and batches, [2, ...] each."""
        state, forward = self.network.initial, StackedForward(self.network)
        w = {name: t.expand(2, *t.shape).clone().requires_grad_() for name, t in state.w.tensors.items()}
        b = {name: t.expand(2, *t.shape).clone() for name, t in state.b.tensors.items()}
        generator = torch.Generator().manual_seed(0)
        self.network.leaves("all")
        uniform = [torch.rand(shape, generator=generator) for shape in self.network.noise_shapes(x)]

        def loss(w: dict[str, Tensor], b: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(forward.of_one(w, b, x, y, uniform).logits, y)

        together: Callable[..., Tensor] = vmap(loss)
        losses = together(w, b, torch.stack([x, x]), torch.stack([y, y]))
        gradients = torch.autograd.grad(losses.sum(), list(w.values()), materialize_grads=True)
        return dict(zip(w, gradients, strict=True))


EXPLODED = 1e6  # a gradient so large comes from maps too small for BatchNorm, and magnifies every last bit


class Laws:
    """The checks of one network.

    Args:
        net: The network. It is not changed.
        title: How messages name it.
        inputs: Shape and type of its inputs.
        num_classes: Number of classes C.
    """

    def __init__(self, net: Net, title: str, inputs: ModelInputs, num_classes: int) -> None:
        self.title, self.inputs, self.classes, self._net = title, inputs, num_classes, net
        self.trial = NetworkTrial(net, title)

    def check(self, cohort: int) -> None:
        """Check everything that a run with this cohort needs.

        Raises:
            UsageError: The network breaks a law. The message says what to change.
            UserCodeError: The user's own code raised an error.
        """
        self.check_scores()
        self.check_repeats()
        self.check_buffers()
        self.check_samples()
        if cohort > 1:
            self.check_stacks(cohort)

    def check_scores(self) -> None:
        """Check that the network returns one score for each class, and leaves its inputs as they are."""
        x = self.inputs.batch(3)
        before = x.clone()
        for training in (False, True):
            scores = self.trial.scores(x, training)
            if scores.shape != (3, self.classes):
                got = "x".join(map(str, scores.shape))
                raise UsageError(
                    f"{self.title} returns scores {got} for 3 samples and {self.classes} classes; it must "
                    f"return 3x{self.classes}: let it take num_classes and make one score for each class"
                )
            if not torch.equal(x, before):
                raise UsageError(
                    f"{self.title} changes its inputs in place, which other clients and later rounds use; "
                    f"work on a copy (x = x + 1, not x += 1; no inplace=True in the first layers)"
                )

    def check_repeats(self) -> None:
        """Check that the same batch gives the same scores."""
        x, y = self.inputs.batch(3), torch.arange(3) % self.classes
        (loss, gradients), (again, same) = (self.trial.trained(x, y, seed) for seed in (1, 2))
        if not (torch.equal(loss, again) and all(torch.equal(gradients[n], same[n]) for n in gradients)):
            raise UsageError(f"{self.title}{NOT_REPEATED}")
        if not torch.equal(self.trial.scores(x, False), self.trial.scores(x, False)):
            raise UsageError(
                f"{self.title} gives other scores for the same batch in evaluation mode when it is called "
                f"again; it may neither draw random numbers nor remember earlier batches there"
            )

    def check_buffers(self) -> None:
        """Check that training changes no other buffers than BatchNorm's statistics."""
        constants = self._constants()
        self.trial.trained(self.inputs.batch(3), torch.arange(3) % self.classes, 1)
        for name, value in self._constants().items():
            if not torch.equal(value, constants[name]):
                raise UsageError(
                    f"{self.title}: its buffer {name} changes in training, and raffed averages the "
                    f"statistics of BatchNorm only; make it a parameter, or compute it in each call"
                )

    def check_samples(self) -> None:
        """Check that in evaluation mode a sample's scores do not depend on the other samples of its batch."""
        x = self.inputs.batch(3)
        together = self.trial.scores(x, False)
        alone = [self.trial.scores(x[i : i + 1], False) for i in range(3)]
        if any(scores.shape != (1, self.classes) for scores in alone):
            got = "x".join(map(str, alone[0].shape))
            raise UsageError(
                f"{self.title} returns scores {got} for a batch of one sample; it must return "
                f"1x{self.classes}: squeeze() and view() with a fixed batch size cause this"
            )
        if not torch.allclose(torch.cat(alone), together, rtol=1e-3, atol=1e-4):
            raise UsageError(
                f"{self.title}: in evaluation mode the scores of a sample depend on the other samples of its "
                f"batch; normalise over the batch in training mode only, as nn.BatchNorm does"
            )

    def check_stacks(self, cohort: int) -> None:
        """Check that stacked clients compute what each of them computes alone."""
        x, y = self.inputs.batch(4), torch.arange(4) % self.classes
        advice = f"use cohort = 0 in place of {cohort}"
        try:
            # In float64, because BatchNorm on small maps magnifies rounding
            trial, worst = NetworkTrial(self._net, self.title, double=True), 1e-3
            x = x.double() if x.is_floating_point() else x
            _, alone = trial.trained(x, y, 1)
        except RaffedError:  # the module makes float32 tensors by itself
            trial, x, worst = self.trial, self.inputs.batch(4), 1e-2
            _, alone = trial.trained(x, y, 1)
        try:
            stacked = trial.stacked(x, y)
        except RaffedError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise UsageError(f"{self.title} cannot be stacked ({text}); {advice}") from error
        largest = max(float(slope.abs().max()) for slope in alone.values() if slope.numel())
        if largest > EXPLODED:
            return
        for name, slope in alone.items():
            if not bool(((stacked[name] - slope).abs() <= worst * largest).all()):
                raise UsageError(f"{self.title} has other gradients of {name} when stacked; {advice}")

    def trains_on_one(self) -> bool:
        """Return whether the network can train on a batch of one sample. BatchNorm on a 1x1 map cannot."""
        try:
            self.trial.trained(self.inputs.batch(1), torch.zeros(1, dtype=torch.int64), 1)
        except (ValueError, RaffedError):
            return False
        return True

    def _constants(self) -> dict[str, Tensor]:
        named = dict(self.trial.network.module.named_buffers())
        return {name: named[name].clone() for name in self._net.constants}


def check_seeded(net: Net, again: Net, title: str) -> None:
    """Refuse a network whose weights do not depend on the seed alone.

    Args:
        net: The network.
        again: The same network, made again from the same seed.
        title: How messages name it.
    """
    ours, theirs = net.state_dict(), again.state_dict()
    if ours.keys() != theirs.keys() or not all(
        torch.equal(torch.nan_to_num(ours[n]), torch.nan_to_num(theirs[n])) for n in ours
    ):
        raise UsageError(
            f"{title} gets other weights from the same seed: its constructor draws random numbers of NumPy "
            f"or Python; draw them by torch (torch.rand, nn.init), which raffed seeds"
        )
