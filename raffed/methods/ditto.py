"""Ditto (Li et al. 2021): beside FedAvg every client trains a personal model that is pulled towards the
global one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from torch import Tensor

from raffed import Budget, Context, Forward, Method, Personal, Private, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import smooth_pull
from raffed.core.server import mean_of
from raffed.methods.fedrs import LeastSamples, LogitFactor, RestrictionOrAuto, restricted
from raffed.methods.registry import Variant

Pull = Annotated[
    float,
    Range(0.0, 1e4),
    Strength(),
    Doc("λ, weight of the pull to the global model; 0 is separate local models."),
]
PersonalEpochs = Annotated[
    float, Range(0.0, 1e4), Doc("Epochs of the personal model; 0 is as many steps as the shared training.")
]


class PersonalModel(Private):
    """v_k with its own BatchNorm statistics; kept from one participation to the next."""

    model: State


class PulledModel(Personal[PersonalModel]):
    """v ← v − η (∇f_k(v) + λ (v − w^t)) on the mini-batches of the shared training.

    w^t is the downloaded model and stays fixed. `epochs` is 0 for as many steps as the shared training.
    `smooth` takes the pull of MAP's released code (`smooth_pull`).
    """

    lam: float
    epochs: float = 0.0
    smooth: bool = False

    def client_init(self, k: Context) -> PersonalModel:
        return PersonalModel(k.initial)

    def start(self, k: Context[PersonalModel]) -> State:
        return k.mine.model

    def budget(self, k: Context) -> Budget:
        return Budget(k.steps, epochs=self.epochs or None, shared_batches=True)

    def private_loss(self, f: Forward, k: Context) -> Tensor:
        pull = smooth_pull(f.w, k.w0) if self.smooth else (f.w - k.w0).sq_norm() / 2
        return k.ce(f) + self.lam * pull

    def finish(self, k: Context) -> tuple[PersonalModel, None]:
        assert k.private is not None
        return PersonalModel(k.private), None

    def model(self, k: Context[PersonalModel]) -> State:
        return k.mine.model


@checked
def ditto(lam: Pull = 1.0, epochs: PersonalEpochs = 0.0, preset: Variant = "original") -> Method:
    """Ditto: beside FedAvg every client trains a personal model that is pulled towards the global one.

    Equation:
        v ← v − η (∇f_k(v) + λ (v − w^t)) (`PulledModel`). For stability ηλ < 2.

    Source:
        Li et al. 2021. λ = 1 and the candidates 0.1, 1 and 2 are the official scripts'. Row Ditto of MAP's
        Table II and MpFedcon's Table 1.

    The preset "authors" is MAP's released code: a far weaker smooth-L1 pull, which makes its row nearly
    standalone training, and uniform means. That code tries λ = 0.1, 0.01 and 0.001.

    Departure of the preset: the released code shuffles anew for the personal model, which here trains on the
    mini-batches of the shared training.
    """
    return Method("Ditto", personal=PulledModel(lam, epochs, preset == "authors"), mean=mean_of(preset))


@checked
def dittors(
    lam: Pull = 1.0,
    epochs: PersonalEpochs = 0.0,
    alpha: LogitFactor = 0.5,
    mode: RestrictionOrAuto = "auto",
    n_min: LeastSamples = 1,
    preset: Variant = "original",
) -> Method:
    """DittoRS: Ditto whose shared training restricts the softmax, as FedRS does.

    Equation:
        Ditto's. The shared training has logit_c · α_{k,c}; the personal model trains with the plain softmax.

    Source:
        MAP (Li et al., TKDE 2024). Row DittoRS of its Table II.

    The preset "authors" is Ditto's, with mode counts where none is named, as in MAP's released code. That
    code tries (α, λ) = (0.1, 0.1), (0.9, 0.01) and (0.5, 0.001).
    """
    head = restricted(alpha, mode, n_min, auto="counts" if preset == "authors" else "binary")
    return replace(ditto(lam, epochs, preset), name="DittoRS", head=head)
