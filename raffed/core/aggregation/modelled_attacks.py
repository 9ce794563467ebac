"""Carry out the modelled attacks of a plan of faults (config/attacks.py): who attacks, and what is sent."""

from __future__ import annotations

import torch

from raffed.config.attacks import ON_UPLOADS
from raffed.config.faults import Faults
from raffed.core import seeds
from raffed.core.messages import Upload
from raffed.core.params import Params

# A server refuses numbers outside the range of exact sums (±2^18), so attackers stay inside it
LIMIT = 2.0**17


def attackers(plan: Faults, seed: int, clients: int) -> frozenset[int]:
    """Return the clients that attack. They are the same in all rounds and for every method.

    Args:
        plan: The plan of faults.
        seed: Seed of the run.
        clients: Number N of all clients.
    """
    if not plan.attack:
        return frozenset()
    order = seeds.rng(seed, "attackers").permutation(clients)
    return frozenset(plan.listed_attackers() or map(int, order[: round(plan.attackers * clients)]))


def attacked(upload: Upload, start: Params, plan: Faults, seed: int, round: int, client: int) -> Upload:
    """Return what an attacker sends in place of its upload.

    Only the weights are changed, and not the BatchNorm statistics or the messages of ingredients. Every
    number stays within ±2^17, so that the server has no reason to refuse it.

    Args:
        upload: What the client would send.
        start: What the client would send if it had not moved (`Method.unmoved`).
        plan: The plan of faults.
        seed: Seed of the run.
        round: Number of the round, counted from 0.
        client: Number of the client.
    """
    by = plan.strength
    if plan.attack not in ON_UPLOADS or (plan.attack == "backdoor" and by == 1.0):
        return upload
    begun = start.flat.to(torch.float64)
    if plan.attack == "gaussian":
        generator = seeds.generator(seed, "attackers", round, client)
        update = torch.randn(begun.shape, generator=generator, dtype=torch.float64).to(begun.device)
    else:
        update = upload.w.flat.to(torch.float64) - begun
    moved = (begun + update * (-by if plan.attack == "sign_flip" else by)).clamp_(-LIMIT, LIMIT)
    return upload.replace(w=Params.from_flat(upload.w.layout, moved.to(torch.float32)))


__all__ = ["attacked", "attackers"]
