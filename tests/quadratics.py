"""Scalar clients f_k(x) = ½ h_k (x − b_k)² carried through whole rounds of the kernel
(docs/papers/baselines.md §0, "QT").

The network is one weight that matters; its cross-entropy over a single class is 0 with gradient 0, so the
quadratic term is the whole objective, and fixed points can be written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core.context import ClientData, Context, Forward
from raffed.core.ingredients import Term
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.models.net import Net
from tests.tiny import Tiny

H, B = (1.0, 3.0, 0.5), (1.0, -2.0, 4.0)
OPTIMUM, WEIGHTED = -2 / 3, -0.1052632  # unweighted, and weighted by n = (1, 2, 5)
GRADIENTS = (-5 / 3, 4.0, -7 / 3)  # ∇f_k at the unweighted optimum


class Quadratic(Term):
    """½ h (x − b)², h and b being the client's inputs."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        return (f.x[:, 0] / 2 * (f.w["head.weight"][0, 0] - f.x[:, 1]) ** 2).mean()


def quadratics(
    method: Method,
    lr: float,
    steps: int,
    momentum: float = 0.0,
    sizes: Sequence[int] = (1, 1, 1),
    h: Sequence[float] = H,
    b: Sequence[float] = B,
) -> Tiny:
    """A federation of quadratic clients that take `steps` full-batch steps a round, starting at x = 0."""
    module = Net(nn.Identity(), nn.Linear(2, 1, bias=False))
    nn.init.zeros_(module.head.weight)
    data = [
        ClientData(torch.tensor([[h[i], b[i]]] * n), torch.zeros(n, dtype=torch.int64), torch.tensor([n]))
        for i, n in enumerate(sizes)
    ]
    local = Local(lr=lr, momentum=momentum, weight_decay=0.0, batch_size=max(sizes), epochs=steps)
    return Tiny(
        replace(method, terms=(*method.terms, Quadratic())), net=Network(module), data=data, local=local
    )


def x_of(point: Params) -> float:
    """The weight that matters."""
    return float(point["head.weight"][0, 0])
