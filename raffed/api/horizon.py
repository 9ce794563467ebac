"""Whether a method's rounds depend on how many rounds the whole run has."""

from __future__ import annotations

import torch

from raffed.runtime.setup import Setup
from raffed.testing.federation import TinyFederation, leaves

ROUNDS = 6  # enough for a method that does something in every second or third round


def horizon_of(setup: Setup) -> tuple[bool, bool]:
    """Try how a method depends on the total number of rounds, which `Spec` states.

    A federation of 4 clients is executed twice for 6 rounds. It is told once that these are all, and once
    that there are twice as many. Every tensor of the server, of the clients' states and of what the clients
    trained is compared, bit for bit.

    Args:
        setup: The run.

    Returns:
        Whether a round before the last one depends on the total, and whether the last one does.
    """
    short, long = _federation(setup, ROUNDS), _federation(setup, 2 * ROUNDS)
    everyone = range(len(short.data))
    for _ in range(ROUNDS - 1):
        short.step(everyone)
        long.step(everyone)
        if not _same(short, long):
            return True, True
    short.step(everyone)
    long.step(everyone)
    return False, not _same(short, long)


def _federation(setup: Setup, rounds: int) -> TinyFederation:
    return TinyFederation(setup.method, visits=rounds, rounds=rounds)


def _same(one: TinyFederation, other: TinyFederation) -> bool:
    """Return whether two federations hold the same tensors, bit for bit."""
    left, right = _tensors(one), _tensors(other)
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(left, right, strict=True)
    )


def _tensors(tiny: TinyFederation) -> list[torch.Tensor]:
    """Return the tensors of the server, of the clients' states, and of every client's models and upload."""
    found = tiny.everything()
    for _, client in sorted(tiny.last.items()):
        found += [
            *leaves(client.trained),
            *leaves(client.personal_state(tiny.method)),
            *leaves(client.upload),
        ]
    return found
