"""FedLESAM (Fan et al. 2024): the local gradient is taken against the direction in which the server moved."""

from __future__ import annotations

from typing import Annotated

from raffed import Context, Gradient, LocalSolver, Method, Params, Private, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.ingredients import SGD_SETTINGS, Descent
from raffed.core.params import Record
from raffed.methods.fedsam import scaled


class PreviousDownload(Private):
    """The shared weights that the client downloaded when it last took part."""

    w: Params


class OffsetDescent(Record):
    """What is trained by SGD, and how far ahead of it the gradient is taken throughout the round."""

    descent: Descent
    offset: Params


class EstimatedSharpnessSteps(LocalSolver[OffsetDescent, PreviousDownload]):
    """On each mini-batch w̃ = w + ρ (w_old − w^t)/(‖w_old − w^t‖ + 1e-12), then SGD from w along ∇f(w̃).

    w_old is the download at the client's previous visit. At its first visit w̃ = w.
    """

    rho: float

    needs_sgd = True

    @property
    def follows(self) -> tuple[str, ...]:
        return SGD_SETTINGS

    def client_init(self, k: Context) -> PreviousDownload:
        return PreviousDownload(k.w0)

    def begin(self, k: Context[PreviousDownload]) -> OffsetDescent:
        return OffsetDescent(Descent.begun(k.start), scaled(k.mine.w - k.w0, self.rho))

    def step(self, carried: OffsetDescent, gradient: Gradient, k: Context[PreviousDownload]) -> OffsetDescent:
        now = carried.descent
        slope, b = gradient(State(now.model.w + carried.offset, now.model.b), 0)
        return carried.replace(descent=now.along(slope, b, k))

    def end(self, carried: OffsetDescent) -> State:
        return carried.descent.model

    def finish(self, k: Context[PreviousDownload]) -> tuple[PreviousDownload, None]:
        return PreviousDownload(k.w0.clone()), None


@checked
def fedlesam(
    rho: Annotated[
        float, Range(0.0, 100.0), Strength(), Doc("ρ, how far ahead the gradient is taken; 0 is FedAvg.")
    ] = 0.1,
) -> Method:
    """FedLESAM: clients look for flat minima of the global loss at the cost of one gradient a step.

    Equation:
        w̃ = w + ρ (w_old − w^t)/‖w_old − w^t‖, w ← w − η (ρ_m v + ∇f(w̃) + wd·w) (`EstimatedSharpnessSteps`),
        w_old the download at this client's previous visit, with rate η, momentum ρ_m and weight decay wd of
        the run. The server's movement stands for the global gradient. Without a previous visit it is FedAvg.

    Source:
        Fan et al., ICML 2024, arXiv 2405.18890. Their code has ρ = 0.1, and 0.5 in an example.

    The authors' runs: rate 0.1, multiplied by 0.998 after every round; weight decay 1e-3, no momentum,
    batches of 25, 5 epochs; 200 clients, of which 5 % take part in a round. These are the defaults of the
    script.

    Departures: the authors' public optimiser takes elements of the flat last global update as if they were
    one tensor for each layer, so that it adds one number to all weights of a layer. It also takes the update
    of the last round for every client, and divides by the sum of the layers' norms. Here it is the published
    rule. That code also takes uniform means and bounds gradients by 10; here means are by samples, and the
    run's `clip_norm` applies.
    """
    return Method("FedLESAM", solver=EstimatedSharpnessSteps(rho) if rho else None)
