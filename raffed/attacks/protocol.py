"""Execute every attack on every image, and compute the figures by which attacks are compared.

All attacks use the same weights and the same starts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.attacks.leakage import (
    Attempt,
    Distance,
    Effort,
    dummies,
    feature_distance,
    gradient_distance,
    inferred,
    reconstruct,
    told,
)
from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.config.validation import Value
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
from raffed.errors import UsageError, check_choice, check_range
from raffed.methods import build_method, method_name
from raffed.methods.common import ClassSums
from raffed.models import build
from raffed.models.catalogue import model_name
from raffed.models.net import Net
from raffed.runtime.run_method import network_args

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


# The attacks of MpFedcon's Fig. 10 and Table 4, as data: who made the upload, and what the attacker knows.


HEADS = ("sent", "dealt", "random")
PAIRS = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3))  # cl/at; the paper does not list the pairs of its figure
SIZES = (1e-4, 1e-2)


@dataclass(frozen=True)
class Setting:
    """One attack.

    Attributes:
        name: Its name.
        method, args: What the client runs.
        cl: Number of fully connected layers of the client's network.
        at: Number of fully connected layers that the attacker assumes.
        head: How the attacker knows the head. With "sent", the head's weights travel. With "dealt", they are
            those that the server sent before round 0 (a control, and a real attack until they have been
            trained). With "random", the attacker draws them.
        infer: Whether the label comes from the sign rule (iDLG) and is not optimised.
        centre: Whether the representation that MpFedcon sends of the class is matched, instead of the
            gradient.
        model, model_args: The network of the client and of the attacker, by name or reference. Without it:
            the LeNet of the paper, with `cl` and `at` layers.
    """

    name: str
    method: str = "fedavg"
    args: Mapping[str, Value] = field(default_factory=dict)
    cl: int = 1
    at: int = 1
    head: Literal["sent", "dealt", "random"] = "sent"
    infer: bool = False
    centre: bool = False
    model: str = ""
    model_args: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("head", self.head, HEADS)
        for name, value in (("cl", self.cl), ("at", self.at)):
            check_range(name, value, 1, 3)
        if self.head != "random" and self.cl != self.at:
            raise UsageError(
                f"{self.name}: an attacker with the head knows {self.cl} layers, so it cannot have {self.at}"
            )
        if self.model and (self.centre or (self.cl, self.at) != (1, 1)):
            raise UsageError(f"{self.name}: `centre`, `cl` and `at` belong to the paper's LeNet")
        if self.centre and self.cl != 1:
            raise UsageError(
                f"{self.name}: with {self.cl} layers what is sent lies behind the private projection"
            )


ONE_STEP = {"head_epochs": 0.0}  # one gradient at the current weights, as in the paper's attack
FIGURE_10 = (
    Setting("DLG"),
    Setting("iDLG", infer=True),
    Setting("known_head", "mpfedcon", ONE_STEP, head="dealt"),
    Setting("head trained since", "mpfedcon", {"head_epochs": 10.0}, head="dealt"),
    *(Setting(f"MpFedcon {cl}/{at}", "mpfedcon", ONE_STEP, cl, at, "random") for cl, at in PAIRS),
    Setting("centre", "mpfedcon", ONE_STEP, head="random", centre=True),
)


def noise_name(kind: str, size: float, meaning: str) -> str:
    """Return the name of a noise, such as "Gaussian 1e-4 (variance)"."""
    return f"{kind.capitalize()} {size:.0e} ({meaning})".replace("e-0", "e-")


TABLE_4 = tuple(
    Setting(noise_name(kind, size, meaning), "noisygrad", {"kind": kind, "size": size, "meaning": meaning})
    for meaning in ("variance", "scale")
    for kind in ("gaussian", "laplace")
    for size in SIZES
)


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
    model = model_name(config.model.name)
    named = method_name(config.method)
    setting = Setting("own", named, config.args, model=model, model_args=network_args(config))
    chosen = chosen_images(torch.from_numpy(data.y), images, config.seed)
    x = prepare_inputs(data.x[chosen], data.transform_in("plain"), data.max_value)
    effort = Effort(iterations=iterations, restarts=restarts)
    found = [
        attack(setting, image, int(data.y[place]), data.num_classes, number, config.seed, effort)
        for number, (image, place) in enumerate(zip(x, chosen, strict=True))
    ]
    return summary(found, [mark for mark in MARKS if mark <= iterations])
