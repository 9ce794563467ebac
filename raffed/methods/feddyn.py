"""FedDyn (Acar et al. 2021): dynamic regularisation; FedDC's server rule is the same and lives here."""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from raffed import Context, Forward, Mean, Method, Params, Private, ServerContext, ServerRule, ServerSGD, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.methods.fedproc import WithPrototypes, prototype_terms
from raffed.methods.registry import Variant

Scored = Literal["active", "broadcast"]
ScoredModel = Annotated[
    Scored,
    Doc("Model that is scored: the mean of the round's local models (active), or w^{t+1} (broadcast)."),
]
ScaledByShare = Annotated[
    bool, Doc("Whether α is divided by the client's relative number of samples, as in the official code.")
]


class ClientDual(Private):
    """λ_k = Σ over its rounds of (w_k − w^t); the gradient state is −α_k λ_k."""

    dual: Params


class DynamicPull(Term[ClientDual]):
    """α_k ⟨λ_k, w⟩ + (α_k/2) ‖w − w^t‖²; then λ_k ← λ_k + (w_k − w^t). Trainable parameters only.

    If `scaled`, α_k = α/ω_k with ω_k = n_k·N/Σ_j n_j, as in the official code, so that uniform means find the
    sample-weighted optimum. Otherwise α_k = α. If `averaged`, the term is (α/T) (⟨λ_k − w^t, w⟩ + ‖w‖²) over
    T tensors, as in MAP's released code. That quadratic is centred at w^t/2, and it is weaker the deeper the
    network is.
    """

    alpha: float
    scaled: bool = True
    averaged: bool = False

    def client_init(self, k: Context) -> ClientDual:
        return ClientDual(k.w0.zeros())

    def loss(self, f: Forward, k: Context[ClientDual]) -> Tensor:
        if self.averaged:
            return self.alpha / len(f.w) * (f.w.dot(k.mine.dual - k.w0) + f.w.sq_norm())
        alpha = self.alpha / client_weight(k) if self.scaled else self.alpha
        return alpha / 2 * (f.w - k.w0).sq_norm() + alpha * f.w.dot(k.mine.dual)

    def finish(self, k: Context[ClientDual]) -> tuple[ClientDual, None]:
        return ClientDual(k.mine.dual + (k.w - k.w0)), None


def client_weight(k: Context) -> Tensor:
    """ω_k = n_k·N/Σ_j n_j [] over all N clients: 1 on average."""
    return k.class_counts.sum() * (k.spec.num_clients / k.spec.samples)


class Drift(Private):
    """drift: the mean of λ_k (FedDC: h_k) over all N clients; active: the mean of the round's local
    models.
    """

    drift: Params
    active: Params


class DriftCorrected(ServerRule[Drift]):
    """w^{t+1} = mean_S w_k + (1/N) Σ_{all k} λ_k.

    The sum needs only |S| and the mean, which must be unweighted. This equals the paper's form h = −α · mean
    λ. The active mean is scored, as the official code plots it, or the broadcast point, which extrapolates.
    """

    score: str = "active"

    def init(self, w: Params) -> Drift:
        return Drift(w.zeros(), w)

    def step(self, own: Drift, w: Params, mean: Params, k: ServerContext) -> tuple[Drift, Params]:
        drift = own.drift + (mean - w) * (k.count / k.spec.num_clients)
        return Drift(drift, mean), mean + drift

    def evaluation_weights(self, own: Drift, w: Params) -> Params:
        return own.active if self.score == "active" else w


class ShareOfTheWay(ServerRule[None]):
    """w^{t+1} = (1 − q) w^t + q · mean_S w_k, q = |S|/N; BatchNorm's statistics go the same way."""

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        return _share(k).step(own, w, mean, k)

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return _share(k).statistics(b, mean, k)


def _share(k: ServerContext) -> ServerSGD:
    return ServerSGD(k.count / k.spec.num_clients, all_state=True)


@checked
def feddyn(
    alpha: Annotated[
        float, Range(0.0, 1e3, open_low=True), Strength(), Doc("α, weight of the dynamic regularisation.")
    ] = 0.01,
    scaled: ScaledByShare = True,
    score: ScoredModel = "active",
    prototypes: WithPrototypes = "none",
    preset: Variant = "original",
) -> Method:
    """FedDyn: each client's objective is regularised by its history.

    Equation:
        α_k ⟨λ_k, w⟩ + (α_k/2) ‖w − w^t‖²; λ_k ← λ_k + (w_k − w^t) (`DynamicPull`, `DriftCorrected`). With
        score "active", w^{t+1} is also scored, as accuracy_broadcast.

    Source:
        Acar et al. 2021. The default of α and its grid {0.001, 0.01, 0.1} are those of the official examples.
        Row FedDyn of FedMR's Table 1.

    Departures: the official code clips gradients at norm 10 (`local.clip_norm`) and forbids BatchNorm. It
    leaves α_k w to the optimiser as weight decay, so it clips g + α_k (λ_k − w^t) and adds α_k w afterwards.
    Here g + α_k (w − w^t + λ_k) is clipped, which differs where the limit is reached. BatchNorm's statistics
    are plain means over the participants, as the weights are.

    The preset "authors" is MAP's released code: another quadratic (`DynamicPull`, averaged), and a server
    without drift that goes |S|/N of the way to the mean, BatchNorm's statistics included
    (docs/papers/baselines.md, FedDyn). `scaled` and `score` do not count then. Its grid of α is 0.001, 0.01
    and 0.1. The share there is the run's Q, which is |S|/N where Q·N is whole and nobody drops out.
    """
    theirs = preset == "authors"
    terms = (DynamicPull(alpha, scaled, theirs), *prototype_terms(prototypes))
    server = ShareOfTheWay() if theirs else DriftCorrected(score)
    mean = Mean(by="clients", fixed=not theirs)  # the drift counts on them; the authors' server does not
    return Method("FedDyn", terms=terms, mean=mean, server=server)
