"""pFedMe (T. Dinh et al. 2020): every client solves for a personal model near its copy of the shared one."""

from __future__ import annotations

from typing import Annotated

from raffed import Context, Gradient, LocalSolver, Method, Params, Personal, ServerSGD, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.params import Record
from raffed.core.server import mean_of
from raffed.methods.registry import Variant


class Envelope(Record):
    """w_k, the client's copy of the shared model, and θ_k, the personal one with the statistics of both."""

    w: Params
    theta: State


class MoreauSteps(LocalSolver[Envelope]):
    """Per mini-batch K steps θ ← θ − η_p (∇f(θ) + λ (θ − w_k)), then w_k ← w_k − η λ (w_k − θ).

    θ starts at w^t each round. This is plain SGD without weight decay. `direct` is the form of MAP's released
    code, w_k ← w_k − η (w_k − θ). Its θ also decays by the run's weight decay, θ ← θ − η_p (∇f(θ) + λ (θ −
    w_k) + wd θ), at a rate η_p that warms up, and follows a schedule, as the run's
    does.
    """

    lam: float
    outer_lr: float
    personal_lr: float
    inner_steps: int
    direct: bool = False

    @property
    def follows(self) -> tuple[str, ...]:
        return ("warmup_rounds", "schedule", "weight_decay") if self.direct else ()

    def begin(self, k: Context) -> Envelope:
        return Envelope(k.start.w, k.start)

    def step(self, carried: Envelope, gradient: Gradient, k: Context) -> Envelope:
        w, theta = carried.w, carried.theta
        rate = self.personal_lr * k.lr_fraction if self.direct else self.personal_lr
        for _ in range(self.inner_steps):
            slope, b = gradient(theta, 0)
            slope = slope + theta.w * k.weight_decay if self.direct and k.weight_decay else slope
            theta = State(theta.w - (slope + (theta.w - w) * self.lam) * rate, b)
        rate = self.outer_lr if self.direct else self.outer_lr * self.lam
        return Envelope(w - (w - theta.w) * rate, theta)

    def end(self, carried: Envelope) -> State:
        return State(carried.w, carried.theta.b)


class EnvelopeModel(Personal):
    """θ_k at the end of local training; nothing is kept."""

    between = "round"

    def model(self, k: Context) -> State:
        assert isinstance(k.carried, Envelope)
        return k.carried.theta


@checked
def pfedme(
    lam: Annotated[
        float, Range(0.0, 1e4), Strength(), Doc("λ, pull of the personal model to the shared one.")
    ] = 15.0,
    outer_lr: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("η, learning rate of the shared model's copy.")
    ] = 0.005,
    personal_lr: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("η_p, rate of the personal model.")
    ] = 0.01,
    inner_steps: Annotated[int, Range(1), Doc("K, steps of the personal model on each mini-batch.")] = 5,
    beta: Annotated[float, Range(0.0, 10.0), Doc("β, step of the server towards the mean.")] = 1.0,
    preset: Variant = "original",
) -> Method:
    """pFedMe: every client solves for a personal model near its copy of the shared one.

    Equation:
        K steps θ ← θ − η_p (∇f(θ) + λ (θ − w_k)), then w_k ← w_k − η λ (w_k − θ) on each mini-batch
        (`MoreauSteps`); w^{t+1} = (1 − β) w^t + β mean. The rates are the method's own, not the run's. R is
        the number of mini-batches of the run's epochs, which takes K times FedAvg's gradients.

    Source:
        T. Dinh et al. 2020. The defaults are the official scripts', which try λ = 15, 20 and 30, η_p from
        0.01 to 0.1, and β = 1 and 2. Row pFedMe of MAP.

    Departures: the official code lets every client train in every round, of which only the sampled ones
    upload, and decays θ by 0.001. Here only the sampled clients train, and θ is not decayed.

    The preset "authors" is MAP's released code: the outer step has no λ, the run's weight decay and warm-up
    apply to θ (`MoreauSteps`, direct), means are uniform, and BatchNorm's statistics also take the server's
    step of rate β. The released code never clips here; a run without `local.clip_norm` does not either. The
    preset does not change the strengths: the released code has η_p = the run's rate, β = 1 and (lam,
    outer_lr, inner_steps) = (0.1, 0.9, 5), (0.01, 0.75, 10) and (0.001, 0.5, 15).
    """
    theirs = preset == "authors"
    solver, server = (
        MoreauSteps(lam, outer_lr, personal_lr, inner_steps, theirs),
        ServerSGD(beta, all_state=theirs),
    )
    return Method("pFedMe", solver=solver, personal=EnvelopeModel(), mean=mean_of(preset), server=server)
