"""Which clients of a run never train, so that they can be scored as clients that come new."""

from __future__ import annotations

from raffed.config.run import RunConfig
from raffed.errors import UsageError


def unseen_clients(config: RunConfig, clients: int) -> tuple[int, ...]:
    """Draw the clients that never train, from a random stream of the seed that nothing else uses.

    Args:
        config: The run's configuration.
        clients: Number of all clients N.

    Returns:
        round(fraction · N) clients in ascending order; none if the fraction is 0.
    """
    count = unseen_count(config, clients)
    if not count:
        return ()
    from raffed.core import seeds  # imported late because it loads torch

    drawn = seeds.rng(config.seed, "unseen").permutation(clients)[:count]
    return tuple(sorted(int(client) for client in drawn))


def unseen_count(config: RunConfig, clients: int) -> int:
    """Return how many clients never train.

    Raises:
        UsageError: The fraction stands for no client, or for all.
    """
    fraction = config.federation.unseen_clients
    count = round(fraction * clients)
    name = f"federation.unseen_clients = {fraction} of {clients} clients"
    if fraction and not count:
        raise UsageError(f"{name} is none of them; give a larger fraction, or 0")
    if count and count >= clients:
        raise UsageError(f"{name} leaves no client to train; give a smaller fraction")
    return count


__all__ = ["unseen_clients", "unseen_count"]
