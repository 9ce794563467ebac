"""FedWMSAM (Li et al. 2025): FedCM's momentum made personal, and a look ahead towards where it would lead."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import (
    Context,
    Gradient,
    LocalSolver,
    Method,
    Params,
    Private,
    ServerContext,
    ServerRule,
    Spec,
    State,
    Summable,
    Wire,
)
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.ingredients import Descent
from raffed.core.params import Record
from raffed.methods.fedcm import NO_MOMENTUM, UNIFORM, mean_gradient
from raffed.methods.fedsam import scaled
from raffed.methods.scaffold import ClientControl

LEAST, MOST = 0.1, 0.9  # between which a round's similarity counts
Sign = Literal["ascent", "descent"]
Target = Literal["momentum", "displacement"]


class Weighted(Wire):
    """m, the mean gradient of the last round; c, the mean of the clients' controls, if they have any; α."""

    m: Params
    c: Params | None
    alpha: float


class KeptWeighted(Private):
    """The same, as the server keeps it."""

    now: Weighted


class RatesAndSimilarity(Summable):
    """Σ_j η_j over a client's steps, and s_k = 1 + cos(Δ_k, m): two numbers beside the weights."""

    rates: float
    similarity: float


class Chase(Record):
    """What is trained by SGD, and how far the target has moved from w^t."""

    descent: Descent
    moved: Params


class MomentumGuidedSteps(LocalSolver[Chase, ClientControl, RatesAndSimilarity, Weighted]):
    """Step b: δ = (w^t + b·m_k) − w_b; g = ∇f(w_b ± ρ δ/‖δ‖); w ← w − η (α g + (1 − α) m_k + wd·w).

    m_k = m + α/(1 − α) · (c − c_k), or m where there are no controls. With `target` "displacement" the target
    moves by −η m_k at a step in place of m_k. In the first step of a round δ = 0, and the gradient is taken
    at w. Afterwards c_k ← c_k − c − Δ_k/Σ_j η_j.
    """

    rho: float
    alpha: float
    controls: bool = True
    sign: str = "ascent"
    target: str = "momentum"

    needs_sgd = True

    @property
    def follows(self) -> tuple[str, ...]:
        return ("lr", "weight_decay", "warmup_rounds", "schedule")

    def server_init(self, w: Params, spec: Spec) -> Weighted:
        return begun(w, self.alpha, self.controls)

    def client_init(self, k: Context[None, Weighted]) -> ClientControl | None:
        return ClientControl(k.w0.zeros()) if self.controls else None

    def momentum(self, k: Context[ClientControl, Weighted]) -> Params:
        """Return m_k."""
        if k.server.c is None:
            return k.server.m
        return k.server.m + (k.server.c - k.mine.c) * (k.server.alpha / (1.0 - k.server.alpha))

    def begin(self, k: Context[ClientControl, Weighted]) -> Chase:
        return Chase(Descent.begun(k.start), k.w0.zeros())

    def step(self, carried: Chase, gradient: Gradient, k: Context[ClientControl, Weighted]) -> Chase:
        w, b, m = carried.descent.model.w, carried.descent.model.b, self.momentum(k)
        ahead = scaled(k.w0 + carried.moved - w, self.rho if self.sign == "ascent" else -self.rho)
        slope, b = gradient(State(w + ahead, b), 0)
        mixed = slope * k.server.alpha + m * (1.0 - k.server.alpha)
        moved = carried.moved + (m if self.target == "momentum" else m * -k.lr)
        return Chase(carried.descent.along(mixed, b, k), moved)

    def end(self, carried: Chase) -> State:
        return carried.descent.model

    def finish(self, k: Context[ClientControl, Weighted]) -> tuple[ClientControl | None, RatesAndSimilarity]:
        told = RatesAndSimilarity(float(k.lr_sum), similarity(k.w - k.w0, k.server.m))
        if k.server.c is None:
            return None, told
        return ClientControl(k.mine.c - k.server.c + mean_gradient(k.w0, k.w, k.lr_sum)), told


def begun(w: Params, alpha: float, controls: bool) -> Weighted:
    """Return what is sent in the first round."""
    return Weighted(w.zeros(), w.zeros() if controls else None, alpha)


def similarity(moved: Params, m: Params) -> float:
    """1 + cos(Δ_k, m), 0 if one of them is 0. As m points against the updates, clients that agree have 0."""
    a, b = moved.flat.double(), m.flat.double()
    lengths = float(a.norm() * b.norm())
    return 1.0 + float(a @ b) / lengths if lengths else 0.0


class WeightedMomentum(ServerRule[KeptWeighted]):
    """w^{t+1} = mean_S w_k; m⁺ = −mean_S Δ_k / mean_S Σ_j η_j; c⁺ = (1 − |S|/N) c + (|S|/N) m⁺.

    α⁺ = (1 − λ) α + λ · mean_S s_k, with the mean of s_k bounded to [0.1, 0.9]. With as many steps at every
    client c⁺ is c + (1/N) Σ_S (c_k⁺ − c_k), since c_k⁺ − c_k = −c − Δ_k/(K η) does not contain c_k.
    """

    alpha: float
    adapt: float
    controls: bool = True

    def init(self, w: Params) -> KeptWeighted:
        return KeptWeighted(begun(w, self.alpha, self.controls))

    def step(
        self, own: KeptWeighted, w: Params, mean: Params, k: ServerContext
    ) -> tuple[KeptWeighted, Params]:
        told, before = k.received["solver"], own.now
        assert isinstance(told.sum, RatesAndSimilarity)
        m = mean_gradient(w, mean, told.sum.rates / told.count)
        share = told.count / k.spec.num_clients
        c = None if before.c is None else before.c * (1.0 - share) + m * share
        bounded = min(max(told.sum.similarity / told.count, LEAST), MOST)
        alpha = (1.0 - self.adapt) * before.alpha + self.adapt * bounded
        return KeptWeighted(Weighted(m, c, alpha)), mean

    def extra_broadcast(self, own: KeptWeighted) -> dict[str, Wire]:
        return {"solver": own.now}


@checked
def fedwmsam(
    rho: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("ρ, how far towards the target the gradient is taken.")
    ] = 0.01,
    alpha: Annotated[
        float,
        Range(0.0, 0.99, open_low=True),
        Doc("α, share of the client's own gradient in a step of the first round."),
    ] = 0.1,
    adapt: Annotated[
        float, Range(0.0, 1.0), Doc("λ, weight of a round's similarity in α; 0 keeps α as it is.")
    ] = 0.01,
    controls: Annotated[bool, Doc("Whether each client's momentum is corrected by its control.")] = True,
    sign: Annotated[
        Sign, Doc("Side of w on which the gradient is taken: towards the target (ascent), or away from it.")
    ] = "ascent",
    target: Annotated[
        Target,
        Doc("What the target moves by in a step: the momentum m_k, or the displacement −η m_k."),
    ] = "momentum",
) -> Method:
    """FedWMSAM: local steps follow a personal momentum, and look ahead towards where it would lead.

    Equation:
        m_k = m + α/(1 − α) · (c − c_k); δ = (w^t + b·m_k) − w_b in step b; w ← w − η (α ∇f(w_b + ρ δ/‖δ‖) +
        (1 − α) m_k + wd·w) (`MomentumGuidedSteps`); m, c and α by `WeightedMomentum`. Means are uniform, and
        the run's momentum does not apply. A step has one gradient.

    Source:
        Li, Huang, Jiang, Liu, Xie, Du, Wang & Wu, NeurIPS 2025, arXiv 2511.22080, as far as the authors'
        poster shows it, and their code (Huang-Yongzhi/NeurlPS_FedWMSAM). ρ is the best of the poster's Table
        6; the code's parser has 0.1.

    The authors' runs: α 0.1, rate 0.1 multiplied by 0.998 after every round, weight decay 1e-3, batches of
    50, 5 epochs; 100 clients, of which each takes part with probability 0.1; 500 rounds. What they report is
    the best round on the test set.

    Where the poster and the code differ: the code goes away from the target (`sign="descent"`), and its
    perturbation takes elements of the flat δ as if they were one tensor for each layer. The default is the
    printed perturbation, with one norm over all weights. In both the target moves by m_k, although m_k is a
    gradient: it runs 1/η times too far, and against the momentum. `target="displacement"` moves it by −η m_k.
    The poster's formula of the similarity has the cosine alone, by which α would rise where clients agree;
    its text and the code have the reverse, which is taken here.

    Departures: a client sends two numbers beside its weights, the sum of its rates and its similarity, and
    the server makes m and c from the mean. With unequal numbers of steps c is close to the mean of the c_k,
    and not equal to it. Three times the weights go down; the code's server keeps the c_k and sends m_k alone.
    That code bounds the mixed gradient by 10, where the run's `clip_norm` bounds ∇f before the mixture, and
    divides the rate in m by its decay of 0.998.
    """
    return Method(
        "FedWMSAM",
        solver=MomentumGuidedSteps(rho, alpha, controls, sign, target),
        passes=(NO_MOMENTUM,),
        mean=UNIFORM,
        server=WeightedMomentum(alpha, adapt, controls),
    )
