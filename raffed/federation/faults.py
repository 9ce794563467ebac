"""Carry out a plan of faults: who is affected, what a damaged upload looks like, and that it is refused."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.faults import NO_FAULT, Faults, ParticipantFault
from raffed.core import seeds
from raffed.core.aggregation.exact_sums import UploadAccumulator
from raffed.core.messages import Upload
from raffed.errors import NumericsError


def draw_faults(plan: Faults, seed: int, round: int, clients: Iterable[int]) -> dict[int, ParticipantFault]:
    """Return what happens to each drawn client, each from its own stream of (seed, round, client)."""
    if not plan.any:
        return dict.fromkeys(clients, NO_FAULT)
    found = {}
    for client in clients:
        a, b, c, d = seeds.rng(seed, "faults", round, client).random(4).tolist()
        found[client] = plan.fault_of(round, client, (a, b, c, d))
    return found


def damaged(upload: Upload, how: str, seed: int, round: int, client: int) -> Upload:
    """Return the upload with one of its floats replaced by a bad value.

    Which float is drawn at random. An upload without floats stays as it is.
    """
    leaves, spec = pytree.tree_flatten(upload)
    wounded = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()
    ]
    if not wounded:
        return upload
    generator = seeds.rng(seed, "faults", round, client, 1)
    which = wounded[int(generator.integers(len(wounded)))]
    hurt = leaves[which].clone().contiguous()
    hurt.view(-1)[int(generator.integers(hurt.numel()))] = torch.nan if how == "nan" else 2.0**100
    leaves[which] = hurt
    spoilt: Upload = pytree.tree_unflatten(leaves, spec)
    return spoilt


def is_refused(upload: Upload, keep: bool) -> bool:
    """Return whether the exact sums refuse an upload.

    This is the server's own check, applied to sums that are thrown away afterwards.
    """
    try:
        UploadAccumulator(keep).add(0, 1.0, upload, "an upload")
    except NumericsError:
        return True
    return False
