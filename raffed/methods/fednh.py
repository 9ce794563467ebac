"""FedNH (Dai et al. 2023): a cosine head whose rows the server moves towards the clients' class means."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Context, Ingredient, Mean, Method, Params, ServerContext, ServerRule
from raffed.config.validation import Doc, Range, checked
from raffed.core.losses import one_hot
from raffed.methods.common import BODY_ONLY, ClassSums, HeldSums
from raffed.methods.fedetf import LearnScale

Normalised = Literal["client", "none"]


class ClassDirections(Ingredient[None, ClassSums]):
    """A client reports, for each class that it holds, n_c · unit(mean of ẑ) and n_c.

    ẑ are the unit features of the trained model in evaluation mode. With `unit` = "none" the mean is not
    scaled to length 1, so that a class whose features disagree counts less.
    """

    unit: str = "client"

    def finish(self, k: Context) -> tuple[None, ClassSums]:
        count = k.class_counts
        total = torch.zeros(k.spec.num_classes, k.spec.feature_dim, dtype=torch.float64, device=count.device)
        for z, y in k.features(k.state):
            total += one_hot(y, k.spec.num_classes).T.to(torch.float64) @ F.normalize(
                z.to(torch.float64), dim=-1
            )
        if self.unit == "client":
            total = F.normalize(total, dim=-1) * count[:, None]
        return None, HeldSums(total.to(torch.float32), count)


class MovingPrototypes(ServerRule[None]):
    """w^{t+1} = mean for the body; W_c ← unit(ρ W_c + (1 − ρ) unit(Σ/Σn)).

    A class that no participant holds keeps its row. With ρ = 1 all rows stay, bit for bit.
    """

    rho: float

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        told = k.received["message"].sum
        assert isinstance(told, ClassSums)
        rows = w["head.weight"] if self.rho == 1.0 else self.moved(w["head.weight"], told)
        return None, Params({**mean.tensors, "head.weight": rows}).clone()

    def moved(self, rows: Tensor, told: ClassSums) -> Tensor:
        """Return the rows [C, D] of the next round's head."""
        held = told.count > 0
        prototype = F.normalize(told.total / told.count.clamp(min=1)[:, None], dim=-1)
        new = F.normalize(self.rho * rows + (1 - self.rho) * prototype.to(rows.dtype), dim=-1)
        return torch.where(held[:, None], new, rows)


@checked
def fednh(
    rho: Annotated[
        float, Range(0.0, 1.0), Doc("ρ, share of a prototype that stays; 1 is FedUH, a frozen head.")
    ] = 0.9,
    scale: Annotated[float, Range(0.0, 1e6, open_low=True), Doc("s, length of the features.")] = 1.0,
    learn_scale: LearnScale = True,
    unit: Annotated[
        Normalised, Doc("Whether a client scales its class means to length 1 (client), or not (none).")
    ] = "client",
) -> Method:
    """FedNH: a cosine head of orthogonal prototypes, which the server moves towards the clients' class means.

    Equation:
        CE(s ẑᵀW) with ẑ = z/‖z‖ and unit rows W_c, frozen in local training and orthogonal at the start. The
        server then takes W_c ← unit(ρ W_c + (1 − ρ) unit(Σ_k n_kc unit(z̄_kc) / Σ_k n_kc))
        (`ClassDirections`, `MovingPrototypes`).

    Source:
        Dai, Chen, Li, Heinecke, Sun and Xu, AAAI 2023, arXiv 2212.02758; Yutong-Dai/FedNH. s begins at 1
        (20 with the official ResNet; its option of a fixed scale is scale = 30, learn_scale = false). Means
        of the models are uniform, as in the official code.

    The method builds its network with features = l2, head_init = orthogonal and head_bias = false, so
    features need at least as many numbers as there are classes. The client's own model is the one that it
    has trained. fluke and FedETF's copy average the unnormalised features; here features always have one
    length, and unit = none leaves their class means as they are.

    The authors' runs: rate 0.01, multiplied by 0.99 after every round; momentum 0.9, weight decay 1e-5,
    gradients bounded by 10 (`--clip-norm`), batches of 64, 5 epochs; 100 clients, of which 10 % take part in
    a round.

    Departure: the variant `adv`, which weights samples by their probability, is left out.
    """
    network = (
        ("features", "l2"),
        ("feature_scale", float(scale)),
        ("learn_scale", learn_scale),
        ("head_init", "orthogonal"),
        ("head_bias", False),
    )
    return Method(
        "FedNH",
        passes=BODY_ONLY,
        message=ClassDirections(unit),
        mean=Mean(by="clients"),
        server=MovingPrototypes(float(rho)),
        network=network,
    )
