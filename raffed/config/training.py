"""How clients train: the part of a run's configuration that raffed.core uses. This module imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Local:
    """How every client trains in a round, by SGD with momentum.

    A method's passes may override momentum, weight decay and epochs. The number of local steps is
    max(int(epochs · batches per epoch), min_steps). An epoch has ⌈n/B⌉ batches for n samples, and the last
    batch may be short.

    Attributes:
        lr: Learning rate η, in [0, 1000].
        momentum: Momentum ρ of SGD, in [0, 0.9999]. The velocity is zero at the start of every training
            phase.
        weight_decay: Factor of the weights that is added to the gradient, in [0, 10].
        batch_size: Samples B in a mini-batch, at least 1.
        epochs: Passes over the client's training samples in a round, in (0, 10000]. Fractions are allowed.
        drop_last: Whether the short last batch of an epoch is left out, so that an epoch has ⌊n/B⌋ batches. A
            client with fewer than B samples still has one batch. Default False.
        min_steps: Minimum number of local steps per client and round, at least 1.
        clip_norm: Largest global norm of a gradient, in (0, 1e9]. Longer gradients are scaled down to it.
            Default None: no clipping.
        warmup_rounds: Number r of rounds over which the learning rate rises as η · min((t + 1)/r, 1), with t
            counted from 0. Default 0: no warm-up.
    """

    lr: float = 0.03
    momentum: float = 0.9
    weight_decay: float = 1e-5
    batch_size: int = 64
    epochs: float = 5
    drop_last: bool = False
    min_steps: int = 1
    clip_norm: float | None = None
    warmup_rounds: int = 0

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
            epochs: Passes over these samples, or None for the run's `epochs`.
        """
        per_epoch = (
            n // self.batch_size if self.drop_last and n >= self.batch_size else -(-n // self.batch_size)
        )
        return max(int((self.epochs if epochs is None else epochs) * per_epoch), self.min_steps)
