"""Numbers of epochs that are drawn for each client and round."""

from __future__ import annotations

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.parts import Pass


def drawn_epochs(local: Local, seed: int, one: Pass, round: int, client: int) -> float | None:
    """Return the epochs of a client in a pass, or None for the run's number.

    A number is drawn if the run says so and the pass has no number of its own. It is uniform among the whole
    numbers from `epochs` to `epochs_to`, and the same in all such passes of a round.

    Args:
        local: The run's settings.
        seed: Seed of the run.
        one: The pass.
        round: Number of the round, counted from 0.
        client: Number of the client.
    """
    if one.epochs is not None or not local.epochs_to:
        return one.epochs
    stream = seeds.rng(seed, "epochs", round, client)
    return float(stream.integers(int(local.epochs), local.epochs_to + 1))


__all__ = ["drawn_epochs"]
