"""Attack one real upload of a client: gradient leakage, labels from gradients, and figures to compare them.

Deep leakage from gradients (Zhu et al. 2019), iDLG (Zhao et al. 2020) and their like search for an image
whose gradient is the observed one. All attacks use the same weights and the same starts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import ClientData, Spec
from raffed.core.messages import Broadcast, Upload, Wire
from raffed.core.method import Method
from raffed.core.params import Params, fields_of
from raffed.core.round import client_round, server_init
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.data.datasets import load_dataset
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError, check_range
from raffed.methods import build_method, method_name
from raffed.models import build, is_own, model_name
from raffed.models.net import Net
from raffed.own.user_code import user_errors
from raffed.runtime.run_method import network_of as requested

Distance = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Effort:
    """How hard an attacker tries.

    `iterations` counts outer iterations of L-BFGS, with up to 20 inner steps each. A restart succeeds if it
    ends well below `done`. It is given up once mean(x'²) exceeds `limit` or D is not a number.
    """

    iterations: int = 300
    restarts: int = 5
    done: float = 1e-6
    limit: float = 30.0
    lr: float = 1.0


@dataclass(frozen=True)
class Attempt:
    """The end of one restart.

    Attributes:
        image: The reconstruction [C, H, W], not clamped.
        label: The label it settled on.
        distance: D; ∞ if the restart diverged.
        trace: What `watch` returned after every iteration.
    """

    image: Tensor
    label: int
    distance: float
    trace: tuple[float, ...]

    @property
    def diverged(self) -> bool:
        return math.isinf(self.distance)

    def at(self, iteration: int) -> float:
        """Return the trace after an iteration, counted from 1. A restart that has ended keeps its
        last value.
        """
        return self.trace[min(iteration, len(self.trace)) - 1]


def gradient_distance(net: nn.Module, weights: Params, g: Params, label: int | None = None) -> Distance:
    """Return D(x' [1, C, H, W], u [classes]) = Σ_l ‖∇_{w_l} CE(A(x'), softmax(u)) − g_l‖² over the names of
    g.

    Args:
        net: The network A.
        weights: Everything that the attacker takes for the network's weights.
        g: The observed gradient.
        label: A known label, used in place of softmax(u) (iDLG).
    """
    fixed = {name: t for name, t in weights.tensors.items() if name not in g.names}

    def distance(x: Tensor, u: Tensor) -> Tensor:
        live = {name: weights[name].detach().requires_grad_() for name in g.names}
        logits, _ = functional_call(net, {**fixed, **live}, (x,))
        share = u.softmax(0) if label is None else (torch.arange(len(u)) == label).to(u.dtype)
        loss = -(share * logits[0].log_softmax(0)).sum()
        grads = torch.autograd.grad(loss, list(live.values()), create_graph=True)
        return torch.stack([(a - g[name]).square().sum() for name, a in zip(live, grads, strict=True)]).sum()

    return distance


def feature_distance(body: nn.Module, weights: Params, z: Tensor) -> Distance:
    """Return D(x', u) = ‖A_θ(x') − z‖² for a representation z [D] that was sent. u is not used.

    `weights` are those of the body.
    """
    inner = {name.removeprefix("body."): t for name, t in weights.tensors.items() if name.startswith("body.")}

    def distance(x: Tensor, u: Tensor) -> Tensor:
        features: Tensor = functional_call(body, inner, (x,))
        return (features[0] - z).square().sum()

    return distance


def reconstruct(
    distance: Distance,
    start: Sequence[tuple[Tensor, Tensor]],
    effort: Effort,
    watch: Callable[[Tensor], float],
) -> Attempt:
    """Return the restart with the smallest final D.

    Args:
        distance: D, which is minimised.
        start: x' [C, H, W] and u [classes] for every restart. Once one has reached `done`, the others are not
            tried.
        effort: How hard to try.
        watch: Called with every iterate, for the record only. The attacker sees D and never this.
    """
    best: Attempt | None = None
    for x, u in start[: effort.restarts]:
        attempt = _descend(distance, x, u, effort, watch)
        if best is None or attempt.distance < best.distance:
            best = attempt
        if best.distance < effort.done:
            break
    assert best is not None
    return best


def dummies(
    shape: Sequence[int], classes: int, count: int, seed: int, image: int
) -> list[tuple[Tensor, Tensor]]:
    """Return `count` starts for an image: x' ~ N(0, 1) of its shape and u ~ N(0, 1)^classes.

    They are the same for every attack.
    """
    draws = [seeds.generator(seed, "attack", image, restart) for restart in range(count)]
    return [(torch.randn(tuple(shape), generator=g), torch.randn(classes, generator=g)) for g in draws]


def _descend(
    distance: Distance, x: Tensor, u: Tensor, effort: Effort, watch: Callable[[Tensor], float]
) -> Attempt:
    """Minimise by L-BFGS as in mit-han-lab/dlg: no line search, history of 100, no clamping."""
    x, u = x[None].clone().requires_grad_(), u.clone().requires_grad_()
    rule, trace, last = torch.optim.LBFGS([x, u], lr=effort.lr), [], math.inf

    def closure() -> Tensor:
        value = distance(x, u)
        x.grad, u.grad = torch.autograd.grad(value, [x, u], materialize_grads=True)
        return value.detach()

    for _ in range(effort.iterations):
        rule.step(closure)  # type: ignore[no-untyped-call]
        trace.append(watch(x.detach()[0]))
        last = float(distance(x, u).detach())
        if not math.isfinite(last) or not float(x.detach().square().mean()) <= effort.limit:
            last = math.inf
            break
        if last < effort.done:
            break
    return Attempt(x.detach()[0], int(u.detach().argmax()), last, tuple(trace))


# Infer the label from the gradient of one sample's cross-entropy with respect to the last layer s = W a +
# b.
#
# See docs/papers/mpfedcon.md §5.1. ∂L/∂s_k = p_k − 1[k = y], ∂L/∂b_k = p_k − 1[k = y], ∂L/∂W_k = (p_k − 1[k
# = y]) a. The rules work for batches of one sample, and only if the last layer's gradient is seen. If the
# output layer is withheld, the rows of the layer before it have no class.


def by_bias(bias: Tensor) -> int:
    """Return y, the only k with a negative entry in ∂b [C]. This needs no condition on a."""
    return int(bias.argmin())


def by_sign(weight: Tensor) -> int:
    """Return y, the row of ∂W [C, D] with the smallest sum (iDLG, Zhao et al. 2020).

    It is the only negative sum if a ≥ 0. The rule fails whenever Σ a < 0. With a signed activation (tanh, or
    MpFedcon's projection) this happens in about half of the cases.
    """
    return int(weight.sum(1).argmin())


def by_inner_product(weight: Tensor) -> int:
    """Return y, the row of ∂W [C, D], C ≥ 3, whose inner products with the others are negative.

    This needs no condition on a. The products of row y with all others add up to −(1 − p_y)² ‖a‖², and those
    of a row k ≠ y to −p_k² ‖a‖². With at least three classes p_k < 1 − p_y, so the smallest sum is that of y.
    """
    gram = weight.double() @ weight.double().T
    return int((gram.sum(1) - gram.diagonal()).argmin())


def inferred(g: Params) -> dict[str, int]:
    """Return rule → label for the rules that the gradient's names allow; empty if the head was withheld."""
    labels = {"bias": by_bias(g["head.bias"])} if "head.bias" in g.names else {}
    if "head.weight" in g.names:
        weight = g["head.weight"]
        labels |= {"sign": by_sign(weight), "inner product": by_inner_product(weight)}
    return labels


def told(slots: dict[str, Wire]) -> int | None:
    """Return the label that the messages beside the weights reveal: the only class with a count.

    Such messages are MpFedcon's centres and the prototypes of FedMR and FedProto. None if no message has
    counts.
    """
    for wire in slots.values():
        count = fields_of(wire).get("count")
        if isinstance(count, Tensor) and int(torch.count_nonzero(count)) == 1:
            return int(count.argmax())
    return None


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
        UsageError: The method's clients upload no weights, or its shared part takes more or less than one
            step, so that the difference of the weights would not be a gradient.
    """
    shared = [pass_ for pass_ in method.passes if pass_.part in ("all", "body", "base")]
    if method.solver is not None or [pass_.epochs or 1.0 for pass_ in shared] != [1.0]:
        raise UsageError(f"{method.name}: the attack needs exactly one step of SGD on one image")
    classes = net.initial.w["head.weight"].shape[0]
    label = torch.tensor([y])
    data = ClientData(net.arranged(x[None]), label, torch.bincount(label, minlength=classes))
    spec = Spec(classes, net.feature_dim, 1, 1, norms=net.norm_names)
    local = Local(lr=lr, momentum=0.0, weight_decay=0.0, batch_size=1, epochs=1)
    sent = server_init(method, net.initial, spec).broadcast()
    done = client_round(method, sent, None, data, TrainingSession(net, local, seed, spec), 0)
    if not done.upload.w.names:
        raise UsageError(f"{method.name}: its clients upload no weights, so there is no gradient to attack")
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
    attempt = reconstruct(distance, start, effort, lambda z: mse(z, x))
    said["attack"] = attempt.label if label is None else label
    return AttackOutcome(attempt, x, y, said)


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
    ends = [_number(outcome.attempt.trace[-1]) for outcome in outcomes]
    numbers = {
        f"mse@{mark}": statistics.median(_number(o.attempt.at(mark)) for o in outcomes) for mark in marks
    }
    numbers["mse"] = statistics.median(ends)
    numbers["psnr"] = statistics.median(
        _number(psnr(outcome.attempt.image, outcome.image), -math.inf) for outcome in outcomes
    )
    if min(outcomes[0].image.shape[1:]) >= 11:
        numbers["ssim"] = statistics.median(
            _number(ssim(outcome.attempt.image, outcome.image), 0.0) for outcome in outcomes
        )
    numbers["recognised"] = sum(end < RECOGNISABLE for end in ends) / len(ends)
    numbers["diverged"] = sum(outcome.attempt.diverged for outcome in outcomes) / len(outcomes)
    for who in outcomes[0].said:
        numbers[f"label {who}"] = sum(o.said[who] == o.label for o in outcomes) / len(outcomes)
    numbers["defended"] = float(numbers["mse"] > DEFENDED)
    return numbers


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
            step on one image or uploads no weights.

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
    client, attacker = (
        build(network, x.shape[1:], data.num_classes, seeds.seed(seed, purpose), **args)
        for purpose in ("weights", "attack")
    )

    def seek(seen: Observed, dealt: Params, said: Mapping[str, int]) -> tuple[Distance, None]:
        return gradient_distance(attacker, seen.broadcast.w, seen.gradient()), None

    with user_errors(network if is_own(network) else ""):
        outcomes = [
            attacked(method, client, image, int(data.y[place]), number, seed, effort, seek)
            for number, (image, place) in enumerate(zip(x, chosen, strict=True))
        ]
    return summary(outcomes, [mark for mark in MARKS if mark <= iterations])
