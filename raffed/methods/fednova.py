"""FedNova (Wang et al. 2020): updates normalised by what the local steps add up to, so that long training
does not weigh more.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from raffed import Context, Correction, Ingredient, Mean, Method, Params, ServerContext, ServerRule, Summable
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import momentum_sum
from raffed.methods.fedopt import Velocity
from raffed.methods.fedproc import WithPrototypes, prototype_terms
from raffed.methods.fedprox import Proximal
from raffed.methods.registry import Variant


class LocalSteps(Summable):
    """n_k ‖a_k‖₁: one number beside the update (MAP's code: without n_k)."""

    fraction_bits = 24  # 2^-24 of a step, up to 2^38 sample-steps

    weighted: float


class NormalisedUpdate(Ingredient[None, LocalSteps]):
    """Sends Δ_k / ‖a_k‖₁ in place of w_k, with Δ_k = w^t − w_k.

    ‖a‖₁ counts the run's momentum, also Nesterov's. Weight decay is part of the gradient. `mu` is the
    weight of a proximal term, which ‖a‖₁ counts too. If `counted`, ‖a‖₁ is counted as MAP's released code
    counts it (`counted_sum`), and the number that is sent with the update is ‖a‖₁, or the number of steps
    where there is a proximal term.
    """

    needs_sgd = True  # ‖a‖₁ is that of SGD at one rate
    needs_one_rate = True
    sends_update = True

    mu: float = 0.0
    counted: bool = False

    def norm(self, k: Context) -> float:
        pull = self.mu * k.lr_sum / max(k.steps, 1)
        if self.counted:
            return counted_sum(k.steps, k.momentum, pull)
        return momentum_sum(k.steps, k.momentum, pull, k.nesterov)

    def outgoing(self, w: Params, k: Context) -> Params:
        return ((k.w0 - k.w) / self.norm(k)).only(w.names).clone()

    def finish(self, k: Context) -> tuple[None, LocalSteps]:
        if self.counted:
            return None, LocalSteps(float(k.steps) if self.mu else self.norm(k))
        return None, LocalSteps(int(k.class_counts.sum()) * self.norm(k))


def counted_sum(steps: int, momentum: float, pull: float) -> float:
    """‖a‖₁ as FedNova's official code and MAP's count it: c ← ρc + 1, a ← a + c, then with a pull a ← (1 −
    ημ)a + 1.

    With momentum and a pull every step is counted by both rules; with one of them alone it is what the steps
    add up to.
    """
    counter = total = 0.0
    for _ in range(steps):
        if momentum:
            counter = momentum * counter + 1.0
            total += counter
        if pull:
            total = total * (1.0 - pull) + 1.0
        if not (momentum or pull):
            total += 1.0
    return total


class PullAfterClipping(Correction):
    """g ← g + μ (w − w^t), after g is clipped.

    This is FedNova's official code and MAP's, where the optimiser adds the pull. The two codes add it to the
    momentum buffer in place, so that it passes through the velocity like any gradient.
    """

    mu: float

    plain_sgd: ClassVar[bool] = False

    def gradient_at(self, g: Params, w: Params, k: Context) -> Params:
        return g + (w - k.w0.only(w.names)) * self.mu


class NormalisedStep(ServerRule[Velocity | None]):
    """w^{t+1} = w^t − u, u = τ_eff Σ_k p_k Δ_k/‖a_k‖₁, τ_eff = Σ_k p_k ‖a_k‖₁; BatchNorm's statistics are
    averaged as in FedAvg.

    The weights τ_eff p_k/‖a_k‖₁ need not add up to 1, so the same rule on running variances could make them
    negative. gmf: momentum on the server, m ← gmf·m + u and w^{t+1} = w^t − m. uniform: p_k = 1/|S|.
    """

    gmf: float = 0.0
    uniform: bool = False

    def init(self, w: Params) -> Velocity | None:
        return Velocity(w.zeros()) if self.gmf else None

    def step(
        self, own: Velocity | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[Velocity | None, Params]:
        told = k.received["message"].sum
        assert isinstance(told, LocalSteps)
        update = mean * (told.weighted / (k.count if self.uniform else k.samples))
        if own is None:
            return None, w - update
        velocity = own.m * self.gmf + update
        return Velocity(velocity), w - velocity


@checked
def fednova(
    prototypes: WithPrototypes = "none",
    gmf: Annotated[float, Range(0.0, 1.0), Doc("Momentum on the server.")] = 0.0,
    mu: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("μ, weight of FedProx's term in local training.")
    ] = 0.0,
    preset: Variant = "original",
) -> Method:
    """FedNova: updates are normalised by what the local steps add up to.

    Long local training therefore weighs no more than short training.

    Equation:
        w^{t+1} = w^t − τ_eff Σ_k p_k Δ_k/‖a_k‖₁ (`NormalisedStep`), for momentum SGD at a constant rate
        within the round.

    Source:
        Wang et al. 2020. Row FedNova of FedMR's Table 1.

    With mu > 0 this departs from the official code in two places. ‖a_k‖₁ is what the steps add up to, where
    the official code counts every step twice if there is also momentum (two steps at ρ = 0.9 and ημ = 0.1:
    2.8 here, 4.42 there, `counted_sum`). And τ_eff = Σ p_k ‖a_k‖₁, where the official code takes Σ p_k τ_k,
    the mean number of steps (2 there).

    With Nesterov's momentum, which ‖a_k‖₁ counts here, the official code still counts ordinary momentum, and
    it adds the pull of mu to the step and not to the velocity.

    With gmf > 0 the official code keeps the server's momentum in units of the gradient: it divides u by the
    round's rate and multiplies the momentum by it. That is the same at one rate for the whole run. Here the
    momentum is in units of the weights, so it does not change with a rate that falls from round to round.

    The preset "authors" is MAP's released code, which has the official code's counts, τ_eff and pull
    (`PullAfterClipping`) with uniform means. Its grid of (gmf, mu) is (0.9, 1e-4), (0.5, 1e-3) and (0.3,
    1e-2).

    Departure of the preset: BatchNorm's statistics, which the released code normalises like weights, are
    averaged here.
    """
    theirs = preset == "authors"
    terms = ((Proximal(mu),) if mu and not theirs else ()) + prototype_terms(prototypes)
    return Method(
        "FedNova",
        terms=terms,
        correction=PullAfterClipping(mu) if mu and theirs else None,
        message=NormalisedUpdate(mu, theirs),
        server=NormalisedStep(gmf, theirs),
        mean=Mean(by="clients" if theirs else "samples", fixed=True),  # τ_eff has the same weights
    )
