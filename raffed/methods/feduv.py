"""FedUV (Son et al. 2024): predictions that vary over a batch, features that spread out."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Term
from raffed.config.validation import Doc, Range, Strength, checked


class PredictionVariance(Term):
    """λ · mean_c relu(γ − std_i softmax(z_i)_c): each class's probability is to vary over the batch.

    The standard deviation is the unbiased one. γ = 1/√C is that of a column of the C x C identity, which
    predictions of a large batch cannot reach: at best √(C−1)/C. So the hinge always pulls there.
    """

    lam: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.lam * lacking_variance(f.logits)


class FeatureUniformity(Term):
    """μ · mean_{i<j} exp(−‖h_i − h_j‖²/σ): features are to spread out.

    h is the input of the head and is not normalised. σ is the lower median of the batch's squared distances
    that are not 0, and has a gradient, so the loss does not depend on the scale of the features.
    """

    mu: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu * closeness(f.z)


def lacking_variance(logits: Tensor) -> Tensor:
    """mean_c relu(1/√C − std_i softmax(z_i)_c) [] of logits [B, C]; 0 for a batch of one."""
    if logits.shape[0] < 2:
        return logits.new_zeros(())
    variance = logits.softmax(-1).var(0)
    spread = (variance + 1e-12).sqrt()  # the root of 0 has no finite slope
    return (1 / math.sqrt(logits.shape[1]) - spread).relu().mean()


def closeness(h: Tensor) -> Tensor:
    """mean_{i<j} exp(−‖h_i − h_j‖²/σ) [] of features [B, D] (`FeatureUniformity`); 0 for a batch of one."""
    size = h.shape[0]
    if size < 2:
        return h.new_zeros(())
    # Differences and not products: equal samples have the distance 0
    square = torch.cdist(h, h, compute_mode="donot_use_mm_for_euclid_dist").square()
    above = torch.triu_indices(size, size, 1, device=h.device)
    pairs = square[above[0], above[1]]
    return (-pairs / lower_median_above_0(pairs)).exp().mean()


def lower_median_above_0(values: Tensor) -> Tensor:
    """The lower median [] of those of the values [n] that are above 0, with gradient; ∞ if there are none."""
    positive = values > 0
    ordered = torch.where(positive, values, math.inf).sort().values
    return ordered.gather(0, (positive.sum() - 1).clamp(min=0)[None] // 2).squeeze(0)


@checked
def feduv(
    lam: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("λ, weight of the variance of the predictions.")
    ] = 2.5,
    mu: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("μ, weight of the uniformity of the features.")
    ] = 0.5,
) -> Method:
    """FedUV: FedAvg whose clients are held to what an even split has: varied predictions, spread features.

    Equation:
        CE + λ · mean_c relu(1/√C − std_i softmax(z_i)_c) + μ · mean_{i<j} exp(−‖h_i − h_j‖²/σ), over the
        batch, h the input of the head (`PredictionVariance`, `FeatureUniformity`). λ = μ = 0 is FedAvg.

    Source:
        Son, Kim, Chung, Huang & Liu, CVPR 2024, arXiv 2402.18372. λ = 2.5 and μ = 0.5 are the released code's
        (batches of 128).

    Departure: a batch of one has neither term, whose values the released code does not define. A batch whose
    features are all equal has σ = ∞, so the second term is constant.
    """
    terms = ((PredictionVariance(lam),) if lam else ()) + ((FeatureUniformity(mu),) if mu else ())
    return Method("FedUV", terms=terms)
