"""Execute every attack on every image, and compute the figures by which attacks are compared.

All attacks use the same weights and the same starts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from raffed.attacks.labels import inferred, told
from raffed.attacks.leakage import (
    Attempt,
    Distance,
    Effort,
    dummies,
    feature_distance,
    gradient_distance,
    reconstruct,
)
from raffed.attacks.quality import mse, psnr, ssim
from raffed.attacks.settings import Setting
from raffed.attacks.upload import LR, Observed, observed
from raffed.core import seeds
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.methods import build_method
from raffed.methods.memory import ClassSums
from raffed.models import build
from raffed.models.net import Net

MARKS = (10, 50, 100, 300)
RECOGNISABLE, DEFENDED = 0.03, 0.06


@dataclass(frozen=True)
class AttackOutcome:
    """One attack on one image.

    `said` maps a rule or message to the label it gave; "attack" is the label of the attack itself.
    """

    attempt: Attempt
    image: Tensor
    label: int
    said: Mapping[str, int] = field(default_factory=dict)


def victim(shape: Sequence[int], classes: int, seed: int, layers: int) -> Net:
    """Return the sigmoid LeNet with `layers` fully connected layers.

    Its convolutions are the same for every number of layers.
    """
    value = seeds.seed(seed, "weights")
    net = build("lenet_dlg", shape, classes, value, fc_layers=layers)
    if layers > 1:
        convolutions = build("lenet_dlg", shape, classes, value).body.get_submodule("encoder")
        net.body.get_submodule("encoder").load_state_dict(convolutions.state_dict())
    return net


def network_of(setting: Setting, shape: Sequence[int], classes: int, seed: int) -> Net:
    """Return the client's network."""
    if not setting.model:
        return victim(shape, classes, seed, setting.cl)
    return build(setting.model, shape, classes, seeds.seed(seed, "weights"), **setting.model_args)


def _guess(setting: Setting, shape: Sequence[int], classes: int, seed: int) -> Net:
    """Return the network that the attacker assumes, with weights that the attacker draws."""
    value = seeds.seed(seed, "attack")
    if not setting.model:
        return build("lenet_dlg", shape, classes, value, fc_layers=setting.at)
    return build(setting.model, shape, classes, value, **setting.model_args)


def attack(
    setting: Setting, x: Tensor, y: int, classes: int, number: int, seed: int, effort: Effort, lr: float = LR
) -> AttackOutcome:
    """Let a client take its step on the image x [C, H, W] with label y, and attack what was sent.

    `number` names the image in the random streams. From `Observed` on, only `watch` sees the truth.
    """
    client = Network(network_of(setting, x.shape, classes, seed))
    seen = observed(build_method(setting.method, setting.args), client, x, y, lr=lr, seed=seed)
    gradient, dealt = seen.gradient(), client.initial.w
    said = inferred(gradient)
    by_message = told(seen.upload.slots)
    if by_message is not None:
        said["message"] = by_message
    label = said["sign"] if setting.infer else by_message if setting.centre else None
    distance = sought(setting, seen, gradient, dealt, x.shape, classes, seed, label)
    found = reconstruct(
        distance, dummies(x.shape, classes, effort.restarts, seed, number), effort, lambda z: mse(z, x)
    )
    said["attack"] = found.label if label is None else label
    return AttackOutcome(found, x, y, said)


def sought(
    setting: Setting,
    seen: Observed,
    gradient: Params,
    dealt: Params,
    shape: Sequence[int],
    classes: int,
    seed: int,
    label: int | None,
) -> Distance:
    """Return the distance that the attacker minimises.

    `dealt` holds all weights before round 0. Only settings with the head "dealt" use it.
    """
    own = _guess(setting, shape, classes, seed)
    if setting.centre:
        sent = next(wire for wire in seen.upload.slots.values() if isinstance(wire, ClassSums))
        return feature_distance(own.body, seen.upload.w, sent.total.sum(0) / sent.count.sum())
    base = {name: t.detach() for name, t in own.named_parameters()} if setting.head == "random" else {}
    known = dealt.tensors if setting.head == "dealt" else {}
    return gradient_distance(own, Params({**base, **known, **seen.broadcast.w.tensors}), gradient, label)


def summary(outcomes: Sequence[AttackOutcome], marks: Sequence[int] = MARKS) -> dict[str, float]:
    """Return metric → number over the images of one setting.

    metric      meaning
    ----------  ---------------------------------------------------------------------------------------------
    mse@T       median MSE after T iterations (∞ for a reconstruction that is not a number)
    psnr, ssim  medians at the end; psnr in dB
    recognised  share of images with a final MSE below 0.03
    diverged    share of images of which every restart diverged
    label WHO   share of right labels
    defended    1 if the median final MSE exceeds 0.06, else 0
    """
    ends = [_number(one.attempt.trace[-1]) for one in outcomes]
    found = {
        f"mse@{mark}": statistics.median(_number(one.attempt.at(mark)) for one in outcomes) for mark in marks
    }
    found["mse"] = statistics.median(ends)
    found["psnr"] = statistics.median(
        _number(psnr(one.attempt.image, one.image), -math.inf) for one in outcomes
    )
    if min(outcomes[0].image.shape[1:]) >= 11:
        found["ssim"] = statistics.median(
            _number(ssim(one.attempt.image, one.image), 0.0) for one in outcomes
        )
    found["recognised"] = sum(end < RECOGNISABLE for end in ends) / len(ends)
    found["diverged"] = sum(one.attempt.diverged for one in outcomes) / len(outcomes)
    for who in outcomes[0].said:
        found[f"label {who}"] = sum(one.said[who] == one.label for one in outcomes) / len(outcomes)
    found["defended"] = float(found["mse"] > DEFENDED)
    return found


def _number(value: float, otherwise: float = math.inf) -> float:
    return otherwise if math.isnan(value) else value


def chosen_images(y: Tensor, count: int, seed: int) -> list[int]:
    """Draw `count` places of y [n] from the seed.

    A larger count begins with the places of a smaller one.
    """
    order = torch.randperm(len(y), generator=seeds.generator(seed, "attack", 0, 0, 1))
    return [int(i) for i in order[:count]]
