"""FedMR (Fan et al., TMLR 2023): manifold reshaping for partially class-disjoint data.

The released code holds the intra-class loss only; the inter-class loss is built from the paper's eq. 4
(docs/papers/fedmr.md §2).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Context, Forward, Method, Params, Received, Spec, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import distance, one_hot
from raffed.errors import UsageError
from raffed.methods.common import ClassSums, Prototypes, class_sums
from raffed.methods.feddecorr import intra_class


class IntraClass(Term):
    """Decorrelates the feature dimensions within each class of the mini-batch  (eq. 3).

    official (released code): Σ_c mean_{i≠j} (X̂_cᵀX̂_c)²_ij / Σ_c N_c, unbiased variance.
    paper: (1/|C_b|) Σ_c ‖ẐᵀẐ/(N_c − 1)‖²_F with biased variance, diagonal included; ε = 1e-8 is added, where
    eq. 3 would divide by zero for a dead feature. Classes with fewer than `least` samples in the batch do not
    count.
    """

    mu: float
    norm: str = "official"
    least: int = 2

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu * intra_class(f.z, f.y, self.norm, self.least)


class InterClass(Term[None, ClassSums, Prototypes]):
    """Keeps z closer to its own class's global prototype than to the others' (eq. 4).

    There is no margin constant: h_{n,j} = max(‖z_n − g_c‖ − ‖z_n − g_j‖, 0), averaged over j, within the
    class, over classes.

    `negatives`: "all" known prototypes (the default: the prose, figure 3 and table 3 need those of missing
    classes), or "local", the literal eq. 4 over the client's own classes. `mode` "pull" is the remark after
    Theorem 1: ‖z_n − g_c‖ alone. `space` "l2" compares unit vectors; "raw" is the paper's. `source`:
    prototypes from the final "local" model (Algorithm 1), from the "global" model as downloaded, or
    "one_hot", g_c = e_c for every class from round 0 on. In the last case nobody sends prototypes
    (docs/papers/fedmr.md §7; the paper finds it worse than FedAvg and gives no scale). `share`: fraction of
    clients that send prototypes, drawn once. `lite`: samples used of each batch.
    """

    mu: float
    negatives: str = "all"
    mode: str = "margin"
    space: str = "raw"
    source: str = "local"
    share: float = 1.0
    lite: int = 0

    purpose = "lite"

    def caution(self, normalised: bool) -> str:
        """Of the sheet's runs on Fashion-MNIST (p5c2, a CNN without BatchNorm, mu2 = 0.1) those with local
        prototypes have 10.5 and 14.2 %, with global ones 35.8 and 35.0 %, and FedAvg 38.1 and 33.8 %.
        """
        if normalised or self.source != "local" or self.space != "raw" or not self.mu:
            return ""
        return (
            f"prototypes of trained local models (prototype_from = local) with mu2 = {self.mu:g} can destroy "
            "training in a network without normalisation, where a local model's features grow away from the "
            "averaged model's; use prototype_from = global, or a network with BatchNorm"
        )

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        if self.source != "one_hot":
            return Prototypes.empty(spec.num_classes, spec.feature_dim)
        if spec.feature_dim < spec.num_classes:
            raise UsageError(
                "prototype_from = 'one_hot' needs at least one feature per class, but there are "
                f"{spec.feature_dim} features for {spec.num_classes} classes; use another network"
            )
        return Prototypes(
            torch.eye(spec.num_classes, spec.feature_dim), torch.ones(spec.num_classes, dtype=torch.bool)
        )

    def draw(self, batch: int, k: Context, generator: torch.Generator) -> Tensor | None:
        """0/1 [B]: the random `lite` samples of this step, without replacement."""
        if not self.lite:
            return None
        return (torch.rand(batch, generator=generator).argsort().argsort() < self.lite).float()

    def loss(self, f: Forward, k: Context[None, Prototypes]) -> Tensor:
        allowed = k.class_counts > 0 if self.negatives == "local" else torch.ones_like(k.server.known)
        kept = torch.ones_like(f.y, dtype=f.z.dtype) if k.drawn is None else k.drawn.to(f.z)
        z, g = f.z, k.server.mean
        if self.space == "l2":
            z, g = F.normalize(z, dim=-1), F.normalize(g, dim=-1)
        return self.mu * inter_class(z, f.y, g, k.server.known, allowed, kept, self.mode)

    def finish(self, k: Context) -> tuple[None, ClassSums | None]:
        if self.source == "one_hot" or not k.chosen(self.share, "sharers"):
            return None, None
        return None, class_sums(k, k.start if self.source == "global" else k.state)

    def server_step(self, s: Prototypes, got: Received[ClassSums], spec: Spec) -> Prototypes:
        return s if got.sum is None else s.updated(got.sum)


def inter_class(
    z: Tensor, y: Tensor, g: Tensor, known: Tensor, allowed: Tensor, kept: Tensor, mode: str = "margin"
) -> Tensor:
    """ℓ_inter [] of z [B, D], y [B], prototypes g [C, D], known [C], allowed [C] (classes admitted), kept [B]
    in {0, 1}.

    Samples of classes without prototype are dropped; without a negative the loss is 0; prototypes get no
    gradient.
    """
    admitted = (known & allowed).to(z.dtype)
    label = one_hot(y, g.shape[0]).to(z.dtype)  # [B, C]
    gap = distance(z, g)
    near = (gap * label).sum(1)  # ‖z − g_y‖
    anchor = (label * admitted).sum(1) * kept  # [B]
    if mode == "pull":
        per_sample = near
    else:
        others = admitted * (1 - label)  # [B, C]
        count = others.sum(1)
        per_sample = (torch.relu(near[:, None] - gap) * others).sum(1) / count.clamp(min=1)
    size = (label * anchor[:, None]).sum(0)  # anchors per class [C]
    per_class = (label * (anchor * per_sample)[:, None]).sum(0) / size.clamp(min=1)
    return per_class.sum() / (size > 0).to(z.dtype).sum().clamp(min=1)


@checked
def fedmr(
    mu1: Annotated[
        float,
        Range(0.0, 1e6),
        Strength(),
        Doc("μ₁, weight of the intra-class loss, in units of `intra_norm`."),
    ] = 0.01,
    mu2: Annotated[float, Range(0.0, 1e6), Strength(), Doc("μ₂, weight of the inter-class loss.")] = 0.1,
    intra_norm: Annotated[
        Literal["official", "paper"],
        Doc("Normalisation of the intra-class loss: the released code's or eq. 3's."),
    ] = "official",
    inter_negatives: Annotated[
        Literal["all", "local"],
        Doc("Prototypes to keep away from: all known ones or those of the client's classes."),
    ] = "all",
    inter_mode: Annotated[
        Literal["margin", "pull"], Doc("Inter-class loss: eq. 4, or only the pull to the own prototype.")
    ] = "margin",
    inter_space: Annotated[
        Literal["raw", "l2"], Doc("Distances between features as they are or scaled to length 1.")
    ] = "raw",
    prototype_from: Annotated[
        Literal["local", "global", "one_hot"],
        Doc("Origin of prototypes: the trained local model, the downloaded one, or unit vectors."),
    ] = "local",
    share: Annotated[float, Range(0.0, 1.0), Doc("Share of clients that send prototypes.")] = 1.0,
    lite: Annotated[
        int, Range(0), Doc("Samples of each batch in the inter-class loss (FedMR-Lite); 0 is all.")
    ] = 0,
    min_class_count: Annotated[
        int, Range(2), Doc("Minimum samples of a class in a batch for the intra-class loss.")
    ] = 2,
) -> Method:
    """FedMR: decorrelated features within a class, margins to the prototypes of the others.

    Equation:
        CE + μ₁ ℓ_intra + μ₂ ℓ_inter (`IntraClass`, eq. 3; `InterClass`, eq. 4). A weight of 0 leaves its term
        out.

    Source:
        Fan et al., TMLR 2023. lite = 10 or 50 are FedMR-Lite; share = 0.5, 0.8 and 1 are the columns of Table
        5. The paper's μ₁ and μ₂ were not obtainable.
    """
    intra = (IntraClass(mu1, intra_norm, min_class_count),) if mu1 else ()
    inter = (
        (InterClass(mu2, inter_negatives, inter_mode, inter_space, prototype_from, share, lite),)
        if mu2
        else ()
    )
    return Method("FedMR", terms=(*intra, *inter))
