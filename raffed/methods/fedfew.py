"""FedFew (Guo et al. 2026): a few server models, all trained by every client and weighted by their losses."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from raffed import (
    Context,
    Gradient,
    LocalSolver,
    Mean,
    Method,
    Params,
    ServerContext,
    ServerRule,
    Spec,
    State,
    Upload,
    Wire,
)
from raffed.config.validation import Doc, Range, checked
from raffed.core.ingredients import SGD_SETTINGS, Descent
from raffed.core.params import Record
from raffed.core.server import mixture
from raffed.errors import UsageError
from raffed.methods.common import Scored
from raffed.methods.ifca import (
    ClusterBank,
    ClusterModel,
    ClusterModels,
    bank_of,
    downloaded_models,
    first_models,
    held_models,
    mean_loss,
)

LossWeight = Literal["none", "samples"]


class FewDescents(Record):
    """All K models of a client while they are trained by SGD, each with its own velocity."""

    models: tuple[Descent, ...]


class FewTrained(Wire):
    """The trained models 1, 2, … by number, and the losses [K] of all. Model 0 is sent as usual."""

    models: ClusterModels
    losses: Tensor


class FewSteps(LocalSolver[FewDescents, None, None, ClusterModels]):
    """On each mini-batch a step of SGD for each of the K models. Model 0 counts as the trained model.

    Attributes:
        count: K.
    """

    count: int

    needs_sgd = True

    @property
    def follows(self) -> tuple[str, ...]:
        return SGD_SETTINGS

    def server_init(self, w: Params, spec: Spec) -> ClusterModels:
        begun = first_models(w, self.count, 0, spec.run_seed)
        if any(torch.equal(model.flat, w.flat) for model in begun):
            raise UsageError(
                "FedFew: its first models are equal and would stay so, because every tensor of the initial "
                "model is constant; begin with weights drawn at random, or set models to 1"
            )
        return ClusterModels({str(j): ClusterModel(model, Params({})) for j, model in enumerate(begun, 1)})

    def begin(self, k: Context[None, ClusterModels]) -> FewDescents:
        return FewDescents(tuple(Descent.begun(model) for model in downloaded_models(k)))

    def step(self, carried: FewDescents, gradient: Gradient, k: Context) -> FewDescents:
        slopes = [gradient(descent.model, 0) for descent in carried.models]
        pairs = zip(carried.models, slopes, strict=True)
        return FewDescents(tuple(descent.along(slope, b, k) for descent, (slope, b) in pairs))

    def end(self, carried: FewDescents) -> State:
        return carried.models[0].model


class BestOfFew(Scored):
    """The trained model with the smallest mean loss on the training samples; of equal ones the first.

    Losses are taken in evaluation mode. All K models and losses are sent.
    """

    between = "round"

    def finish(self, k: Context) -> tuple[None, FewTrained]:
        models = trained_models(k)
        sent = {str(j): ClusterModel(m.w.clone(), m.b.clone()) for j, m in enumerate(models) if j}
        return None, FewTrained(ClusterModels(sent), torch.tensor([mean_loss(k, model) for model in models]))

    def model(self, k: Context) -> State:
        return min(trained_models(k), key=lambda model: mean_loss(k, model))


def trained_models(k: Context) -> list[State]:
    assert isinstance(k.carried, FewDescents)
    return [descent.model for descent in k.carried.models]


class TchebycheffSet(ServerRule[ClusterBank | None]):
    """θ_k ← θ_k + Σ_i α_i w_ik (θ_ik − θ_k), with the α_i w_ik of `few_weights`.

    Attributes:
        count: K.
        mu: μ.
    """

    count: int
    mu: float

    each: ClassVar[bool] = True
    has_global: ClassVar[bool] = False

    def table_size(self, w: Params, spec: Spec) -> int:
        return self.count * w.layout.size

    def step(
        self, own: ClusterBank | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[ClusterBank, Params]:
        old, sent, weights = held_models(own, w, self.count, 0, k), k.uploads, self._weights(k)
        new = []
        for number, before in enumerate(old):
            models = [model_of(upload, number) for upload in sent]
            shares = weights[:, number]
            moved = [moved_by(shares, [m.w for m in models], before.w)]
            moved.append(moved_by(shares, [m.b for m in models], before.b))
            new.append(ClusterModel(*moved))
        return bank_of(new), new[0].w

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return moved_by(self._weights(k)[:, 0], [upload.b for upload in k.uploads], b)

    def extra_broadcast(self, own: ClusterBank | None) -> dict[str, Wire]:
        return {} if own is None else {"solver": own.models}

    def _weights(self, k: ServerContext) -> Tensor:
        sent = k.uploads
        losses = torch.stack([told_by(upload).losses for upload in sent]).double()
        if sent[0].n is not None:  # the code's loss_weight = "samples"
            losses = losses * torch.tensor([upload.n or 0 for upload in sent], dtype=torch.float64)[:, None]
            losses = losses / sum(upload.n or 0 for upload in sent)
        return few_weights(losses, self.mu)


def told_by(upload: Upload) -> FewTrained:
    told = upload.slots["personal"]
    assert isinstance(told, FewTrained)
    return told


def model_of(upload: Upload, number: int) -> ClusterModel:
    """Return a client's trained model of a number, 0 to K − 1."""
    return told_by(upload).models.models[str(number)] if number else ClusterModel(upload.w, upload.b)


def moved_by(shares: Tensor, points: list[Params], before: Params) -> Params:
    """Return θ + Σ_i shares_i (θ_i − θ), as an exact sum that is rounded once.

    Args:
        shares: Shares [M], float64, that add up to at most 1.
        points: The θ_i [M].
        before: θ.
    """
    rest = max(0.0, 1.0 - float(shares.sum()))
    return mixture([*points, before], [*shares.tolist(), rest], before)


def few_weights(losses: Tensor, mu: float) -> Tensor:
    """Return α_i w_ik [M, K], which add up to 1.

    S_i = Σ_k e^{−L_ik/μ}, w_ik = e^{−L_ik/μ}/S_i and α_i = S_i^{−1} / Σ_j S_j^{−1}, by logarithms.

    Args:
        losses: L [M, K], float64.
        mu: μ.
    """
    scaled = -losses / mu
    return scaled.softmax(1) * (-scaled.logsumexp(1)).softmax(0)[:, None]


@checked
def fedfew(
    models: Annotated[int, Range(1, 100), Doc("K, number of server models.")] = 3,
    mu: Annotated[
        float,
        Range(0.0, 1e9, open_low=True),
        Doc("μ, smoothness: the smaller, the more weigh the hardest clients and each client's best model."),
    ] = 0.01,
    loss_weight: Annotated[
        LossWeight,
        Doc(
            "What a client's losses are multiplied by: nothing (none), as in the paper, or its share of the "
            "samples, as in the code."
        ),
    ] = "none",
) -> Method:
    """FedFew: a few server models, all trained by every client and weighted by their losses.

    Equation:
        Each client trains all K models θ_k (`FewSteps`) and sends them with their losses L_ik. With S_i = Σ_k
        e^{−L_ik/μ}, w_ik = e^{−L_ik/μ}/S_i and α_i = S_i^{−1} / Σ_j S_j^{−1} the server makes θ_k ← θ_k +
        Σ_i α_i w_ik (θ_ik − θ_k) (`TchebycheffSet`), which descends μ log Σ_i S_i^{−1}. K times FedAvg's
        weights go down and up, and a step has K gradients.

    Source:
        Guo, Zhang, Lin, Li, Tang and Zhang, CVPR 2026, arXiv 2603.11992, and its code (pgg3/FedFew at
        1b29dec): K 3 in its configurations, μ 0.01, rate 0.005, batches of 50, one epoch, plain SGD, 2,000
        rounds of 20 or 10 clients that all take part.

    Scored: the best of the K models after local training, by the training loss, as in the code, which trains
    and scores before the server's step and prints the best round on test data. So K = 1 is scored after local
    training, too.

    Where the paper and the code differ: the code multiplies L_ik by p_i = n_i/Σn before both softmaxes, which
    with 20 clients makes μ about 20 times larger (`loss_weight = "samples"`). The default is the equation.

    Departures: in the code all K models begin as copies, which only the order of their batches separates.
    Here one is the run's, the others have its numbers in another order, tensor by tensor (`redrawn`), and all
    see the same batches. L_ik is the loss of the trained model in evaluation mode, where the code takes the
    mean of the last epoch's training losses. BatchNorm's statistics move as the weights do; in the code they
    stay with their client. The code's mode of K private heads is left out.
    """
    return Method(
        "FedFew",
        solver=FewSteps(models),
        personal=BestOfFew("trained"),
        # The rule has weights of its own; only `loss_weight` says whether n_k is sent
        mean=Mean(by="samples" if loss_weight == "samples" else "clients", fixed=True),
        server=TchebycheffSet(models, mu),
    )
