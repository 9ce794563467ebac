"""How clients train: the part of a run's configuration that raffed.core uses. It imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from raffed.config.validation import Doc, Range


@dataclass(frozen=True)
class Local:
    """How every client trains in a round, by SGD with momentum.

    A method's passes may override momentum, weight decay and epochs. The number of local steps is
    max(int(epochs · batches per epoch), min_steps). An epoch has ⌈n/B⌉ batches for n samples, and the last
    batch may be short.
    """

    lr: Annotated[float, Range(0.0, 1e3), Doc("Learning rate η.")] = 0.03
    momentum: Annotated[
        float,
        Range(0.0, 0.9999),
        Doc("Momentum ρ of SGD. The velocity is zero at the start of every training phase."),
    ] = 0.9
    weight_decay: Annotated[
        float, Range(0.0, 10.0), Doc("Factor of the weights that is added to the gradient.")
    ] = 1e-5
    batch_size: Annotated[int, Range(1), Doc("Samples B in a mini-batch.")] = 64
    epochs: Annotated[
        float,
        Range(0.0, 1e4, open_low=True),
        Doc("Passes over the client's training samples in a round; 0.5 is half of one."),
    ] = 5
    epochs_to: Annotated[
        int,
        Range(0),
        Doc(
            "Largest number of epochs; 0: every client makes `epochs`. Otherwise every client draws a whole "
            "number from `epochs` to this one, in every round."
        ),
    ] = 0
    drop_last: Annotated[
        bool,
        Doc(
            "Whether the short last batch of an epoch is left out. An epoch then has ⌊n/B⌋ batches, and a "
            "client with fewer than B samples still has one batch."
        ),
    ] = False
    min_steps: Annotated[int, Range(1), Doc("Minimum number of local steps per client and round.")] = 1
    clip_norm: Annotated[
        float | None,
        Range(0.0, 1e9, open_low=True),
        Doc("Largest global norm of a gradient. Longer gradients are scaled down to it."),
    ] = None
    warmup_rounds: Annotated[
        int,
        Range(0),
        Doc(
            "Number r of rounds over which the learning rate rises; 0: no warm-up. The rate is "
            "η · min((t + 1)/r, 1), with t counted from 0."
        ),
    ] = 0

    def warmth(self, round: int) -> float:
        """Return the fraction of the learning rate that is used in a round, counted from 0; at most 1.

        During warm-up it is (round + 1) / warmup_rounds.
        """
        return min((round + 1) / self.warmup_rounds, 1.0) if self.warmup_rounds else 1.0

    def rate(self, round: int) -> float:
        return self.lr * self.warmth(round)

    def steps(self, n: int, epochs: float | None = None) -> int:
        """Return the number of local steps of a client.

        Args:
            n: Training samples of the client.
            epochs: Passes over these samples, or None for the run's `epochs`, or for their expected number if
                they are drawn.
        """
        per_epoch = (
            n // self.batch_size if self.drop_last and n >= self.batch_size else -(-n // self.batch_size)
        )
        usual = (self.epochs + self.epochs_to) / 2 if self.epochs_to else self.epochs  # of a drawn number
        return max(int((usual if epochs is None else epochs) * per_epoch), self.min_steps)
