"""Per-FedAvg (Fallah et al. 2020): the shared model is trained to be good after one gradient step on the
client's data.
"""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Budget, Context, Gradient, LocalSolver, Mean, Method, Params, Personal, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.params import Record
from raffed.methods.registry import Variant

MetaGradient = Literal["fo", "hf"]
LEAK = 0.9  # momentum of MAP's released code


class Meta(Record):
    """The meta-model, and the momentum buffer of the `authors` preset."""

    model: State
    velocity: Params


class MetaSteps(LocalSolver[Meta]):
    """One step of Σ f(w − α∇f(w)) on independent mini-batches D, D' and D''.

    w̃ = w − α∇f(w; D) and q = ∇f(w̃; D'). Mode fo is w ← w − β q. Mode hf is w ← w − β (q − α [∇f(w + δq;
    D'') − ∇f(w − δq; D'')]/(2δ)). A step takes 2 (hf: 3) mini-batches of the run's epochs, drawn from one
    shuffle while it lasts.

    `leak` is MAP's released code: fo with momentum 0.9, whose one buffer the inner and the outer step share,
    and as many steps as FedAvg, so on twice the data. Both gradients get the run's weight decay wd·w, and α
    warms up, and follows a schedule, as the run's rate does.
    """

    inner_lr: float
    outer_lr: float
    mode: str
    delta: float
    leak: bool = False

    @property
    def follows(self) -> tuple[str, ...]:
        return ("warmup_rounds", "schedule", "weight_decay") if self.leak else ()

    def batches(self) -> int:
        return 3 if self.mode == "hf" else 2

    def iterations(self, steps: int) -> int:
        return steps if self.leak else super().iterations(steps)

    def begin(self, k: Context) -> Meta:
        return Meta(k.start, k.start.w.zeros())

    def step(self, carried: Meta, gradient: Gradient, k: Context) -> Meta:
        w, old = carried.model.w, carried.velocity * (LEAK if self.leak else 0.0)
        alpha = self.inner_lr * k.lr_fraction if self.leak else self.inner_lr
        slope, b = gradient(carried.model, 0)
        inner = old + self._decayed(slope, w, k)
        q, b = gradient(State(w - inner * alpha, b), 1)
        q = self._decayed(q, w, k)
        outer = inner * LEAK + q if self.leak else q
        if self.mode == "hf":
            up, _ = gradient(State(w + q * self.delta, b), 2)
            down, _ = gradient(State(w - q * self.delta, b), 2)
            outer = outer - (up - down) * (self.inner_lr / (2 * self.delta))
        return Meta(State(w - outer * self.outer_lr, b), outer)

    def _decayed(self, slope: Params, w: Params, k: Context) -> Params:
        return slope + w * k.weight_decay if self.leak and k.weight_decay else slope

    def end(self, carried: Meta) -> State:
        return carried.model


class Adapted(Personal):
    """The trained meta-model after `steps` (or `epochs`) of plain SGD of rate α on the client's data;
    nothing is kept.
    """

    steps: int
    lr: float
    epochs: float = 0.0

    between = "private"
    plain_sgd = True

    def budget(self, k: Context) -> Budget:
        return Budget(self.steps, lr=self.lr, momentum=0.0, weight_decay=0.0, epochs=self.epochs or None)

    def model(self, k: Context) -> State:
        assert k.private is not None
        return k.private


@checked
def perfedavg(
    inner_lr: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("α, learning rate of the adaptation.")
    ] = 0.01,
    outer_lr: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("β, learning rate of the meta-model.")
    ] = 0.01,
    mode: Annotated[
        MetaGradient, Doc("Meta-gradient: first order (fo), or with a Hessian-free correction (hf).")
    ] = "fo",
    delta: Annotated[float, Range(0.0, 1.0, open_low=True), Doc("δ, difference of the hf mode.")] = 1e-3,
    adapt_steps: Annotated[int, Range(0), Doc("Mini-batch steps before the personal score.")] = 1,
    adapt_epochs: Annotated[float, Range(0.0, 1e4), Doc("Epochs in place of these steps, if above 0.")] = 0.0,
    preset: Variant = "original",
) -> Method:
    """Per-FedAvg: the shared model is trained to be good after one gradient step on the client's data.

    Equation:
        w̃ = w − α ∇f(w; D); w ← w − β ∇f(w̃; D') in mode fo (`MetaSteps` has hf). Means are uniform. The
        rates are the method's own, not the run's; a β below FedAvg's rate learns slower in proportion.

    One of the two personal scores is computed. The other one, after one step, is a run with adapt_epochs 0,
    which trains the same bits, since adaptation leaves nothing behind.

    Source:
        Fallah et al. 2020, which has β = 1e-3. The grids of α and β are 1e-3 and 1e-2. Row Per-FedAvg of
        MAP's Tables I and II (there with the run's rate as α, docs/papers/baselines-personal.md, Per-FedAvg)
        and PerFedAvg of MpFedcon's Table 1, which adapts for one epoch.

    The preset "authors" is MAP's released code: first order whatever `mode` is, momentum 0.9 with one buffer
    that the inner and the outer step share, the run's weight decay and warm-up (`MetaSteps`, leak), as many
    steps as FedAvg and so twice the data, scored without adaptation (adapt_steps and adapt_epochs do not
    count). The released code never clips here; a run without `local.clip_norm` does not either. The preset
    does not change the rates: the released code has α = the run's rate and tries β = 0.1, 0.05 and 0.01.
    """
    authors = preset == "authors"
    solver = MetaSteps(inner_lr, outer_lr, "fo" if authors else mode, delta, authors)
    personal = Adapted(0, inner_lr) if authors else Adapted(adapt_steps, inner_lr, adapt_epochs)
    return Method("Per-FedAvg", solver=solver, personal=personal, mean=Mean(by="clients"))
