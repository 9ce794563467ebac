"""CReFF (Shang et al. 2022): the server retrains the head on federated features whose gradients match the
clients'.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from raffed import Ingredient, Method, Params, Private, ServerRule, Summable, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core import seeds
from raffed.core.context import Context, ServerContext, Spec
from raffed.core.losses import one_hot
from raffed.methods.common import train_head

RETRAIN_BATCH = 32
EPSILON = (
    1e-6  # beside the product of the norms in the official code's cosine, so that a row of zeros has cosine 0
)


class RetrainedHead(Wire):
    """Ŵ: weight [C, D], bias [C] (zeros and unused where the network's head has none)."""

    weight: Tensor
    bias: Tensor


class ClassGradients(Summable):
    """Sums over clients of the class gradients G_{k,c}.

    For each class c there are weight [C, C, D], bias [C, C] and the number of clients that hold c [C]. A
    client sends |C_k| (d C + C) numbers, those of its classes. `holders` says which classes these are and is
    not counted.
    """

    fraction_bits = 24
    rows = "holders"
    labels = ("holders",)

    weight: Tensor
    bias: Tensor
    holders: Tensor


class FeatureGradients(Ingredient[None, ClassGradients, RetrainedHead]):
    """For every class that a client holds, the gradient of Ŵ's cross-entropy: (1/n_c) Σ (p − e_c) hᵀ.

    The features h come from the downloaded encoder in evaluation mode, before local training.
    """

    needs_cross_entropy = True

    def server_init(self, w: Params, spec: Spec) -> RetrainedHead:
        return _head(w, spec.num_classes)

    def finish(self, k: Context[None, RetrainedHead]) -> tuple[None, ClassGradients]:
        classes, held = k.spec.num_classes, k.class_counts.clamp(min=1)
        weight = torch.zeros(classes, classes, k.spec.feature_dim, device=held.device)
        bias = torch.zeros(classes, classes, device=held.device)
        for z, y in k.features(k.start):
            label = one_hot(y, classes).to(z.dtype)
            error = (z @ k.server.weight.to(z.dtype).T + k.server.bias.to(z.dtype)).softmax(-1) - label
            weight += torch.einsum("bc,bj,bd->cjd", label, error, z).to(weight.dtype)
            bias += (label.T @ error).to(bias.dtype)
        holders = (k.class_counts > 0).to(torch.int64)
        return None, ClassGradients(weight / held[:, None, None], bias / held[:, None], holders)


class Federated(Private):
    """The federated features F [C, M, D], empty before the first round, and Ŵ."""

    features: Tensor
    weight: Tensor
    bias: Tensor


class ClassifierRetraining(ServerRule[Federated]):
    """w^{t+1} is FedAvg's mean. F also moves towards the clients' gradients, and a fresh Ŵ is trained on F.

    F_c starts as N(0, 1) once and takes `match_steps` SGD steps on Σ_c dist(∇CE(Ŵ; F_c, c), Ḡ_c). Ḡ_c is the
    mean over the clients that hold c. dist is Σ over output rows (1 − cos) of the weight + (1 − cos) of the
    bias (`_cosine`). A class that nobody holds is skipped. The encoder of w^{t+1} is scored under Ŵ. Local
    training continues from w^{t+1} with FedAvg's head.
    """

    features: int
    match_steps: int
    match_lr: float
    retrain_epochs: int
    retrain_lr: float

    on_device: ClassVar[bool] = True

    def init(self, w: Params) -> Federated:
        head = _head(w, len(w["head.weight"]))
        return Federated(torch.zeros(0), head.weight, head.bias)

    def step(self, own: Federated, w: Params, mean: Params, k: ServerContext) -> tuple[Federated, Params]:
        told = k.received["message"].sum
        assert isinstance(told, ClassGradients)
        draws = seeds.generator(k.run_seed, "server", k.round)
        shape = k.spec.num_classes, self.features, k.spec.feature_dim
        first = not own.features.numel()
        points = torch.randn(shape, generator=draws).to(own.weight.device) if first else own.features
        count = told.holders.clamp(min=1)
        goal = told.weight / count[:, None, None], told.bias / count[:, None]
        for _ in range(self.match_steps):
            live = points.detach().requires_grad_()
            gap = gradient_gap(live, own.weight, own.bias, *goal)
            points = points - self.match_lr * torch.autograd.grad(gap[told.holders > 0].sum(), live)[0]
        head = self.retrained(points, draws) if self.retrain_epochs else _head(mean, k.spec.num_classes)
        return Federated(points, head.weight, head.bias), mean

    def extra_broadcast(self, own: Federated) -> dict[str, Wire]:
        return {"message": RetrainedHead(own.weight, own.bias)}

    def evaluation_weights(self, own: Federated, w: Params) -> Params:
        bias = {"head.bias": own.bias} if "head.bias" in w.names else {}
        return Params({**w.tensors, "head.weight": own.weight, **bias}).clone()

    def retrained(self, points: Tensor, draws: torch.Generator) -> RetrainedHead:
        """A fresh linear layer (torch's initialisation), plain SGD in batches of 32 over all federated
        features.
        """
        classes, per, width = points.shape
        x = points.reshape(-1, width)
        y = torch.arange(classes, device=x.device).repeat_interleave(per)
        drawn = [torch.rand(size, generator=draws).to(x) for size in ((classes, width), (classes,))]
        weight, bias = ((2 * uniform - 1) / width**0.5 for uniform in drawn)
        head = train_head(
            weight,
            bias,
            x,
            y,
            epochs=self.retrain_epochs,
            lr=self.retrain_lr,
            batch=RETRAIN_BATCH,
            draws=draws,
        )
        return RetrainedHead(*head)


def gradient_gap(points: Tensor, weight: Tensor, bias: Tensor, goal: Tensor, goal_bias: Tensor) -> Tensor:
    """dist per class [C] between the head's gradients on features [C, M, D] and goals [C, C, D], [C, C].

    It ignores the scale of both while the product of their norms is far above EPSILON.
    """
    classes, per, _ = points.shape
    labels = one_hot(torch.arange(classes, device=points.device), classes)[:, None, :]
    error = (points @ weight.T + bias).softmax(-1) - labels.to(points.dtype)  # [C, M, C]
    rows = torch.einsum("cmj,cmd->cjd", error, points) / per
    far = (1 - _cosine(rows, goal)).sum(-1)
    return far + (1 - _cosine(error.mean(1), goal_bias))


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """a·b/(‖a‖ ‖b‖ + 1e-6) over the last axis, the official code's form: (3, 4)·(3, 4) at length 1e-3
    each is 1/2, not 1.
    """
    lengths: Tensor = a.norm(dim=-1) * b.norm(dim=-1)
    return (a * b).sum(-1) / (lengths + EPSILON)


def _head(w: Params, classes: int) -> RetrainedHead:
    bias = w["head.bias"] if "head.bias" in w.names else torch.zeros(classes, device=w.flat.device)
    return RetrainedHead(w["head.weight"].clone(), bias.clone())


@checked
def creff(
    features: Annotated[int, Range(1), Doc("Number of federated features of each class.")] = 100,
    match_steps: Annotated[int, Range(0), Doc("Steps a round that match the features' gradients.")] = 100,
    match_lr: Annotated[float, Range(0.0, 100.0), Strength(), Doc("Learning rate of these steps.")] = 0.1,
    retrain_epochs: Annotated[
        int, Range(0), Doc("Epochs a round that retrain the head; 0 keeps FedAvg's head.")
    ] = 300,
    retrain_lr: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("Learning rate of the retraining.")
    ] = 0.01,
) -> Method:
    """CReFF: the server retrains the head on federated features whose gradients match the clients'.

    Equation:
        F ← F − η Σ_c ∇ dist(∇CE(Ŵ; F_c, c), Ḡ_c), then a fresh Ŵ is trained on F (`ClassifierRetraining`).
        The gradients of the classes show the server which classes a client holds.

    Source:
        Shang et al. 2022; the defaults are the official code's. Row CReFF of GLDP's Table 2.

    Departures: the first Ŵ is the network's initial head, where the official code draws a linear layer of its
    own. A class gradient is over all samples of the class, without augmentation, where the official code
    averages 10 draws of up to 32 augmented images.
    """
    rule = ClassifierRetraining(features, match_steps, match_lr, retrain_epochs, retrain_lr)
    return Method("CReFF", message=FeatureGradients(), server=rule)
