"""Execute every attack on every image, and compute the figures by which attacks are compared.

All attacks use the same weights and the same starts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.attacks.leakage import (
    Attempt,
    Distance,
    Effort,
    dummies,
    gradient_distance,
    inferred,
    reconstruct,
    told,
)
from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import ClientData, Spec
from raffed.core.messages import Broadcast, Upload
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.round import client_round, server_init
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.data.datasets import load_dataset
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError, check_range
from raffed.methods import build_method, method_name
from raffed.models import build
from raffed.models.catalogue import model_name
from raffed.models.net import Net
from raffed.runtime.run_method import network_of as requested

# One real step of a client, and what the server sees of it: the broadcast, the upload and the learning
# rate.


LR = 0.1


@dataclass(frozen=True)
class Observed:
    """Everything that a server has of one client's round: wires in both directions, the learning rate, and
    whether the method sends updates w^t − w in place of weights.
    """

    broadcast: Broadcast
    upload: Upload
    lr: float
    sends_update: bool = False

    def gradient(self) -> Params:
        """Return g = (w^t − w) / η of one plain SGD step, for the uploaded names; exact up to 2^-24
        |w| / η.
        """
        w = self.upload.w
        if self.sends_update:
            return w / self.lr
        return Params({name: (self.broadcast.w[name] - w[name]) / self.lr for name in w.names})


def observed(method: Method, net: Network, x: Tensor, y: int, *, lr: float = LR, seed: int = 0) -> Observed:
    """Execute a client's first round with one image x [C, H, W] in [0, 1] of label y, and return what is
    seen.

    SGD has no momentum and no weight decay, and a pass of one epoch is one step.

    Raises:
        UsageError: The method's shared part takes more or less than one step, so that the difference of the
            weights would not be a gradient.
    """
    shared = [one for one in method.passes if one.part in ("all", "body", "base")]
    if method.solver is not None or [one.epochs or 1.0 for one in shared] != [1.0]:
        raise UsageError(f"{method.name}: the attack needs exactly one step of SGD on one image")
    classes = net.initial.w["head.weight"].shape[0]
    label = torch.tensor([y])
    data = ClientData(net.arranged(x[None]), label, torch.bincount(label, minlength=classes))
    spec = Spec(classes, net.feature_dim, 1, 1, norms=net.norm_names)
    local = Local(lr=lr, momentum=0.0, weight_decay=0.0, batch_size=1, epochs=1)
    sent = server_init(method, net.initial, spec).broadcast()
    done = client_round(method, sent, None, data, TrainingSession(net, local, seed, spec), 0)
    return Observed(sent, done.upload, lr, method.sends_update)


# How close a reconstruction is to the image: MSE, PSNR and SSIM, for pictures [C, H, W] with values in [0,
# 1].


WINDOW, SIGMA = 11, 1.5
K1, K2 = 0.01, 0.03


def mse(x: Tensor, truth: Tensor) -> float:
    """Return the mean of (x − truth)² over all numbers.

    Below 0.03 an image is recognisable. The variance of the images is about 0.06, and noise gives about 1.3.
    """
    return float((x - truth).square().mean())


def psnr(x: Tensor, truth: Tensor) -> float:
    """Return 10 log10(1 / MSE) in dB, for a range of 1; ∞ for equal pictures."""
    error = mse(x, truth)
    return math.inf if error == 0 else -10 * math.log10(error)


def ssim(x: Tensor, truth: Tensor) -> float:
    """Return the structural similarity (Wang et al. 2004), 1 for equal pictures.

    It uses a Gaussian window of 11 with σ = 1.5 at valid positions, and the mean over all positions and
    channels. Sides below 11 are an error of the convolution. x is not clamped.
    """
    a, b = x[:, None].double(), truth[:, None].double()
    mean_a, mean_b = _blurred(a), _blurred(b)
    var_a, var_b = _blurred(a * a) - mean_a**2, _blurred(b * b) - mean_b**2
    shared = _blurred(a * b) - mean_a * mean_b
    c1, c2 = K1**2, K2**2
    top = (2 * mean_a * mean_b + c1) * (2 * shared + c2)
    return float((top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())


def _blurred(x: Tensor) -> Tensor:
    at = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    bell = torch.exp(-(at**2) / (2 * SIGMA**2))
    window = torch.outer(bell, bell) / bell.sum() ** 2
    return F.conv2d(x, window[None, None])


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


Seek = Callable[[Observed, Params, Mapping[str, int]], tuple[Distance, int | None]]


def attacked(
    method: Method, net: Net, x: Tensor, y: int, number: int, seed: int, effort: Effort, seek: Seek
) -> AttackOutcome:
    """Let a client take its step on the image x [C, H, W] with label y, and attack what was sent.

    From `Observed` on, only `watch` sees the truth.

    Args:
        method: The client's method.
        net: The client's network.
        x, y: Its image and its label.
        number: Number of the image in the random streams.
        seed: Seed of the attack.
        effort: How hard the attacker tries.
        seek: What the attacker does with what was seen, all weights before round 0, and the labels that rules
            and messages say: the distance to minimise, and the label that is taken for granted, or None.
    """
    client = Network(net)
    seen = observed(method, client, x, y, seed=seed)
    said = inferred(seen.gradient())
    by_message = told(seen.upload.slots)
    if by_message is not None:
        said["message"] = by_message
    distance, label = seek(seen, client.initial.w, said)
    classes = client.initial.w["head.weight"].shape[0]
    start = dummies(x.shape, classes, effort.restarts, seed, number)
    found = reconstruct(distance, start, effort, lambda z: mse(z, x))
    said["attack"] = found.label if label is None else label
    return AttackOutcome(found, x, y, said)


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


# What a server can read out of the upload of one's own method, or of a client with one's own network.


def leakage(
    config: RunConfig, *, images: int = 4, iterations: int = 100, restarts: int = 2
) -> dict[str, float]:
    """Attack single steps of clients by deep leakage from gradients (DLG), as MpFedcon's Fig. 10 does.

    Every client has one image and makes one step of plain SGD. The attacker knows all weights before the
    step, the learning rate, and what was sent, and searches for an image whose gradient is the observed one.

    Args:
        config: Method, network, data set and seed; the rest of it plays no part. The search needs second
            derivatives, so take a network with smooth activations, such as `lenet_dlg`. With ReLU it mostly
            fails, which says nothing about the method.
        images: How many training images are attacked, at least 1.
        iterations: Iterations of L-BFGS for each start, at least 1.
        restarts: Starts for each image, at least 1.

    Returns:
        Metric → number, such as "mse" (median over the images, 0 is the image itself), "psnr", "recognised"
        (share of images with an error below 0.03) and "label attack" (share of right labels).

    Raises:
        UsageError: A name does not exist, the data are no images, or the method does not make exactly one
            step on one image.

    Example:
        >>> import raffed
        >>> from raffed.attacks.protocol import leakage
        >>> config = raffed.RunConfig(method="fedavg", model=raffed.Model("lenet_dlg"))
        >>> leakage(config, images=1)["recognised"]  # doctest: +SKIP
        1.0
    """
    for what, value in (("images", images), ("iterations", iterations), ("restarts", restarts)):
        check_range(what, value, 1, 100_000)
    data = load_dataset(config.data.dataset, config.data.root)
    if data.x.ndim != 4:
        raise UsageError(f"{config.data.dataset} holds no images; leakage is measured on images")
    chosen = chosen_images(torch.from_numpy(data.y), images, config.seed)
    x = prepare_inputs(data.x[chosen], data.transform_in("plain"), data.max_value)
    effort = Effort(iterations=iterations, restarts=restarts)
    method = build_method(method_name(config.method), config.args)
    network, args, seed = model_name(config.model.name), requested(config).args, config.seed
    client, own = (
        build(network, x.shape[1:], data.num_classes, seeds.seed(seed, purpose), **args)
        for purpose in ("weights", "attack")
    )

    def seek(seen: Observed, dealt: Params, said: Mapping[str, int]) -> tuple[Distance, None]:
        return gradient_distance(own, seen.broadcast.w, seen.gradient()), None

    found = [
        attacked(method, client, image, int(data.y[place]), number, seed, effort, seek)
        for number, (image, place) in enumerate(zip(x, chosen, strict=True))
    ]
    return summary(found, [mark for mark in MARKS if mark <= iterations])
