"""FedAwS (Yu et al. 2020): after averaging the server spreads the class proxies (rows of the head) apart."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Method, Params, ServerContext, ServerRule
from raffed.config.validation import Doc, Range, Strength, checked

MOMENTUM = 0.9  # as in MAP's code


class Spreadout(ServerRule[None]):
    """w^{t+1} = mean, then `steps` steps of SGD with momentum 0.9 and rate `lr` on the head's weight
    alone.
    """

    nu: float
    steps: int
    lr: float

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        if not self.steps:
            return None, mean
        proxies, velocity = mean["head.weight"].clone(), torch.zeros_like(mean["head.weight"])
        for _ in range(self.steps):
            live = proxies.requires_grad_()
            (slope,) = torch.autograd.grad(spreadout(live, self.nu), live)
            velocity = MOMENTUM * velocity + slope
            proxies = proxies.detach() - self.lr * velocity
        return None, Params({**mean.tensors, "head.weight": proxies}).clone()


def spreadout(proxies: Tensor, nu: float) -> Tensor:
    """R = (1/C²) Σ_{c≠c'} max(0, ν − d_cc')², d = ½(1 − cos) in [0, 1], of proxies [C, D]  (form of MAP's
    code).

    Without the constant diagonal ν²/C that the code carries; collapsed proxies get identical gradients and
    stay together.
    """
    unit = F.normalize(proxies, dim=-1)
    count = proxies.shape[0]
    gap = torch.relu(nu - (1 - unit @ unit.T) / 2).square()
    return gap.masked_fill(torch.eye(count, dtype=torch.bool, device=proxies.device), 0.0).sum() / count**2


@checked
def fedaws(
    nu: Annotated[
        float, Range(0.0, 1.0), Strength(), Doc("ν, distance up to which proxies are pushed apart.")
    ] = 0.8,
    server_steps: Annotated[int, Range(0), Doc("Steps of the server a round; 0 is FedAvg.")] = 30,
    server_lr: Annotated[float, Range(0.0, 100.0), Strength(), Doc("Learning rate of these steps.")] = 0.1,
) -> Method:
    """FedAwS as a baseline of MAP: after averaging the server spreads the class proxies apart.

    Equation:
        R = (1/C²) Σ_{c≠c'} max(0, ν − d_cc')², d = ½ (1 − cos), over the rows of the head (`spreadout`).
        Clients train by cross-entropy.

    Source:
        Yu et al. 2020, in the form of MAP's code, which searches (ν, steps, rate) in (0.9, 20, 1.0), (0.8,
        30, 0.1) and (0.5, 50, 0.01). Row FedAwS of MAP's Tables I and II.

    Departure: the original takes one step, and its clients, who own one class each, have a positive-only
    loss.
    """
    return Method("FedAwS", server=Spreadout(nu, server_steps, server_lr))
