"""How clients train: the part of a run's configuration that the kernel knows. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Local:
    """How clients train (the run's configuration; a method's passes may override momentum, decay and epochs).

    lr: η. warmup_rounds r: η·min((t+1)/r, 1), 0 for none. weight_decay is added to the gradient. clip_norm:
    global gradient norm, None for none. An epoch has ⌈n/B⌉ batches, the last one short; with drop_last ⌊n/B⌋
    (a client with fewer than B samples has one batch). steps = max(int(epochs · batches per epoch),
    min_steps).
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
        """The share of the rate that a round has while it warms up: (round + 1)/warmup_rounds, at most 1."""
        return min((round + 1) / self.warmup_rounds, 1.0) if self.warmup_rounds else 1.0

    def rate(self, round: int) -> float:
        return self.lr * self.warmth(round)

    def steps(self, n: int, epochs: float | None = None) -> int:
        """Local steps of a client with n training samples."""
        per_epoch = (
            n // self.batch_size if self.drop_last and n >= self.batch_size else -(-n // self.batch_size)
        )
        return max(int((self.epochs if epochs is None else epochs) * per_epoch), self.min_steps)
