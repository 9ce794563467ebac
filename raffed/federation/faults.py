"""Carry out a plan of faults and attacks: who is affected, what is sent, and that damage is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.config.faults import NO_FAULT, ON_UPLOADS, PATCH, Faults, ParticipantFault
from raffed.core import seeds
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import Upload
from raffed.core.params import Params
from raffed.errors import NumericsError, UsageError
from raffed.federation.selection import check_named
from raffed.results.metric import Row
from raffed.results.metrics import ATTACK_SUCCESS, ATTACKING


def draw_faults(plan: Faults, seed: int, round: int, clients: Iterable[int]) -> dict[int, ParticipantFault]:
    """Return what happens to each drawn client, each from its own stream of (seed, round, client)."""
    if not plan.any:
        return dict.fromkeys(clients, NO_FAULT)
    faults = {}
    for client in clients:
        a, b, c, d = seeds.rng(seed, "faults", round, client).random(4).tolist()
        faults[client] = plan.fault_of(round, client, (a, b, c, d))
    return faults


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


# The modelled attacks of a plan of faults (config/faults.py): who attacks, what is sent and measured.


# A server refuses numbers outside the range of exact sums (±2^18), so attackers stay inside it
LIMIT = 2.0**17


def attackers(plan: Faults, seed: int, trainable: Sequence[int]) -> frozenset[int]:
    """Return the clients that attack. They are the same in all rounds and for every method.

    Args:
        plan: The plan of faults.
        seed: Seed of the run.
        trainable: The clients that may train, in ascending order.
    """
    if not plan.attack:
        return frozenset()
    order = seeds.rng(seed, "attackers").permutation(len(trainable))[: round(plan.attackers * len(trainable))]
    return frozenset(plan.listed_attackers() or (trainable[place] for place in order))


def attacked(upload: Upload, start: Params, plan: Faults, seed: int, round: int, client: int) -> Upload:
    """Return what an attacker sends in place of its upload.

    Only the weights are changed, and not the BatchNorm statistics or the messages of ingredients. Every
    number stays within ±2^17, so that the server has no reason to refuse it.

    Args:
        upload: What the client would send.
        start: What the client would send if it had not moved (`raffed.core.method.unmoved`).
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


def attack_rows(
    plan: Faults,
    seed: int,
    trainable: Sequence[int],
    number: int,
    participants: Collection[int],
    score: Callable[[], ScoreCounts] | None,
) -> list[Row]:
    """Return the rows about an attack: how many participants attacked, and how often a backdoor succeeds.

    Args:
        plan: The plan of faults.
        seed: Seed of the run.
        trainable: The clients that may train.
        number: Number of rounds done.
        participants: The clients that trained.
        score: Score of the global model on images with the patch, where the target counts as right. None
            without a backdoor, or if the round is not evaluated.
    """
    if not plan.attack:
        return []
    attacking = len(attackers(plan, seed, trainable) & set(participants))
    rows = [ATTACKING.row(number, float(attacking), n=len(participants))]
    if score is not None:
        success = score()
        rows.append(ATTACK_SUCCESS.row(number, success.accuracy, n=success.n))
    return rows


def check_attack(
    plan: Faults,
    method: str,
    shares: bool,
    trainable: Sequence[int],
    inputs: npt.NDArray[np.generic],
    num_classes: int,
) -> None:
    """Check the attack of a run.

    Args:
        plan: The plan of faults.
        method: Name of the run's method.
        shares: Whether its clients share weights.
        trainable: The clients that may train.
        inputs: The run's inputs [N, ...].
        num_classes: Number of classes C.

    Raises:
        UsageError: It is not possible, or would have no effect.
    """
    plan.check_attack()
    if not plan.attack:
        return
    what = f"faults.attack = {plan.attack!r}"
    listed, clients = plan.listed_attackers(), len(trainable)
    check_named("faults.attacker_list", listed, trainable)
    if not listed and not round(plan.attackers * clients):
        raise UsageError(
            f"faults.attackers = {plan.attackers:g} of {clients} clients comes to none of them; it must be "
            f"above {0.5 / clients:.4g}, such as {1 / clients:.4g} for one"
        )
    if plan.attack not in ("label_flip", "backdoor") and not shares:
        raise UsageError(f"{what}: the clients of {method} share no weights that could be changed")
    if plan.attack != "backdoor":
        return
    shape = inputs.shape[1:]
    if len(shape) != 3 or min(shape[1:]) <= PATCH or inputs.dtype.kind not in "uf":
        raise UsageError(
            f"{what} puts a patch of {PATCH} by {PATCH} pixels into images, but the inputs have the shape "
            f"{shape}; use label_flip, or images"
        )
    if plan.backdoor_target >= num_classes:
        raise UsageError(
            f"faults.backdoor_target = {plan.backdoor_target}; classes are 0 to {num_classes - 1}"
        )
