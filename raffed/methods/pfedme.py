"""pFedMe (T. Dinh et al. 2020): every client solves for a personal model near its copy of the shared one."""

from __future__ import annotations

from raffed.core.context import Context
from raffed.core.ingredients import Gradient, LocalSolver, Personal
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.record import Record
from raffed.core.server import ServerSGD, mean_of
from raffed.errors import Preset, UsageError, by_authors, check_range


class Envelope(Record):
    """w_k, the client's copy of the shared model, and θ_k, the personal one with the statistics of both."""

    w: Params
    theta: State


class MoreauSteps(LocalSolver):
    """Per mini-batch: K steps θ ← θ − η_p (∇f(θ) + λ(θ − w_k)), then w_k ← w_k − η λ (w_k − θ); θ starts at
    w^t each round.

        Plain SGD without weight decay. direct: the form of MAP's released code, w_k ← w_k − η (w_k − θ),
        whose θ also decays by the run's weight decay, θ ← θ − η_p (∇f(θ) + λ(θ − w_k) + wd θ), at a rate η_p
        that warms up as the run's does.
    """

    lam: float
    outer_lr: float
    personal_lr: float
    inner_steps: int
    direct: bool = False

    def begin(self, k: Context) -> Envelope:
        return Envelope(k.start.w, k.start)

    def step(self, carried: Envelope, gradient: Gradient, k: Context) -> Envelope:
        w, theta = carried.w, carried.theta
        rate = self.personal_lr * k.warmth if self.direct else self.personal_lr
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
        carried: Envelope = k.carried
        return carried.theta


def pfedme(
    lam: float = 15.0,
    outer_lr: float = 0.005,
    personal_lr: float = 0.01,
    inner_steps: int = 5,
    beta: float = 1.0,
    preset: Preset = "original",
) -> Method:
    """pFedMe: λ, η (outer_lr), η_p (personal_lr), K (inner_steps), β: w^{t+1} = (1 − β) w^t + β mean. Row
    pFedMe of MAP.

        Rates are its own, not the run's; R is the number of mini-batches of the run's epochs (K times
        FedAvg's gradients). Defaults: the official scripts, which try λ 15, 20, 30, η_p 0.01 to 0.1 and β 1,
        2. The official code lets every client train in every round, of which only the sampled ones upload,
        and decays θ by 0.001; here only the sampled clients train, and θ is not decayed.

        preset "authors" is MAP's released code: the outer step has no λ, the run's weight decay and warm-up
        apply to θ (`MoreauSteps`, direct), means are uniform, and BatchNorm's statistics take the server's
        step of rate β too. The released code never clips here; a run without `local.clip_norm` does not
        either. The preset does not change the strengths: the released code has η_p = the run's rate, β = 1
        and (lam, outer_lr, inner_steps) = (0.1, 0.9, 5), (0.01, 0.75, 10), (0.001, 0.5, 15).
    """
    check_range("lam", lam, 0.0, 1e4)
    check_range("outer_lr", outer_lr, 0.0, 10.0)
    check_range("personal_lr", personal_lr, 0.0, 10.0)
    check_range("beta", beta, 0.0, 10.0)
    if inner_steps < 1:
        raise UsageError(f"inner_steps = {inner_steps}: at least 1 step on the personal model")
    theirs = by_authors(preset)
    solver, server = (
        MoreauSteps(lam, outer_lr, personal_lr, inner_steps, theirs),
        ServerSGD(beta, all_state=theirs),
    )
    return Method("pFedMe", solver=solver, personal=EnvelopeModel(), mean=mean_of(preset), server=server)
