"""FedPAC (Xu et al. 2023): a shared body pulled to class centres, under heads combined for each client."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from raffed import Context, Ingredient, Method, Mixtures, Params, Pass, ServerRule, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import ServerContext, Spec
from raffed.core.losses import one_hot
from raffed.core.parts import in_part
from raffed.core.server import mixture, with_rows
from raffed.methods.common import Scored
from raffed.methods.fedproto import PrototypePull


class HeadStatistics(Wire):
    """What the server compares heads by: variance V [] and scaled class means h_c = π_c μ_c, [C, D]."""

    variance: Tensor
    means: Tensor


class TellsStatistics(Ingredient[None, HeadStatistics]):
    """V = (1/n)(Σ_c π_c E_c‖z‖² − Σ_c ‖h_c‖²) and h of the downloaded model's features, in evaluation mode.

    π_c are the client's class shares, μ_c its class means over its n training samples.
    """

    def finish(self, k: Context) -> tuple[None, HeadStatistics]:
        n, square = int(k.class_counts.sum()), torch.zeros((), dtype=torch.float64)
        total = torch.zeros(k.spec.num_classes, k.spec.feature_dim, dtype=torch.float64)
        for z, y in k.features(k.start):
            wide = z.to(torch.device("cpu"), torch.float64)
            total += one_hot(y.cpu(), k.spec.num_classes).T.to(torch.float64) @ wide
            square += wide.square().sum()
        h = total / n
        variance = ((square / n - h.square().sum()) / n).clamp(min=0.0)
        return None, HeadStatistics(variance.to(torch.float32), h.to(torch.float32))


class CombinedHeads(ServerRule[Mixtures | None]):
    """Client i downloads Σ_j α_ij head_j in place of the mean head, with the α of `head_shares`.

    A client that does not take part keeps its last head.
    """

    floor: float

    each: ClassVar[bool] = True

    def table_size(self, w: Params, spec: Spec) -> int:
        return spec.everyone * (head_of(w).layout.size + spec.everyone)

    def step(
        self, own: Mixtures | None, w: Params, mean: Params, k: ServerContext
    ) -> tuple[Mixtures, Params]:
        sent, clients, everyone = k.uploads, k.received["server"].clients, k.spec.everyone
        told = [upload.slots["message"] for upload in sent]
        variance = torch.stack([report.variance for report in told if isinstance(report, HeadStatistics)])
        means = torch.stack([report.means.flatten() for report in told if isinstance(report, HeadStatistics)])
        heads = [head_of(upload.w) for upload in sent]
        alpha = head_shares(variance.double(), means.double(), self.floor)
        combined = [mixture(heads, row.tolist(), heads[0]).flat for row in alpha]
        rows = with_rows(own.rows if own else None, everyone, clients, combined)
        known = with_rows(own.known if own else None, everyone, clients, [torch.tensor(True)] * len(sent))
        return Mixtures(rows, torch.eye(everyone, dtype=torch.float64), known, None, "head"), mean


def head_of(w: Params) -> Params:
    return w.only(name for name in w.names if in_part(name, "head"))


def head_shares(variance: Tensor, means: Tensor, floor: float) -> Tensor:
    """Return α [K, K]: row i minimises αᵀ(diag(V) + D_i)α over α ≥ 0, Σα = 1.

    D_i[j, l] = (h_i − h_j)·(h_i − h_l).

    Args:
        variance: V [K], float64, at least 0.
        means: h of every client [K, C · D], float64.
        floor: Shares below it become 0, but for the largest, and the others are divided by their sum.
    """
    shares = []
    for h in means:
        gap = h - means
        alpha = simplex_minimum(torch.diag(variance) + gap @ gap.T)
        # The largest may be below it as well, and equal ones differ by rounding
        alpha = torch.where(alpha < min(floor, 0.999999 * float(alpha.max())), 0.0, alpha)
        shares.append(alpha / alpha.sum())
    return torch.stack(shares)


def simplex_minimum(a: Tensor) -> Tensor:
    """Return the α ≥ 0 with Σα = 1 that minimises αᵀ A α, by an active set.

    α is β/Σβ of the β ≥ 0 that minimises ½ βᵀ A β − Σβ, as their conditions of optimality show. 1e-13
    of the largest diagonal is added to it, so that A may be singular.

    Args:
        a: A [K, K], symmetric and positive semidefinite, float64.
    """
    a = a + torch.eye(len(a), dtype=a.dtype) * (1e-13 * float(a.diagonal().max()) or 1.0)
    beta, inside = torch.zeros(len(a), dtype=a.dtype), torch.zeros(len(a), dtype=torch.bool)
    for _ in range(10 * len(a)):
        slope = torch.where(inside, -torch.inf, 1.0 - a @ beta)
        if float(slope.max()) <= 1e-12:
            break
        inside[slope.argmax()] = True
        while True:
            best = torch.zeros_like(beta)
            best[inside] = torch.linalg.solve(a[inside][:, inside], torch.ones_like(beta[inside]))
            out = inside & (best <= 0.0)
            if not out.any():
                break
            step = (beta[out] / (beta[out] - best[out])).min()
            beta = beta + step * (best - beta)
            inside = inside & ~(out & (beta <= 1e-15 * float(beta.max())))
            beta = torch.where(inside, beta, 0.0)
        beta = best
    return beta / beta.sum()


@checked
def fedpac(
    lam: Annotated[
        float,
        Range(0.0, 1e6),
        Strength(),
        Doc("λ, weight of the pull to the class centres; 0 leaves it out."),
    ] = 1.0,
    head_epochs: Annotated[
        float, Range(0.0, 1e4), Doc("Epochs of the head on a frozen body, 0 for none.")
    ] = 1.0,
    head_lr_scale: Annotated[
        float,
        Range(0.0, 1e3),
        Doc("Learning rate of the head as a multiple of the run's, which the body has."),
    ] = 10.0,
    floor: Annotated[
        float, Range(0.0, 0.1), Doc("Shares of heads below it become 0, except the largest; the rest grows.")
    ] = 1e-3,
) -> Method:
    """FedPAC: a shared body pulled to class centres, and for each client a combination of heads.

    Equation:
        First the head on the frozen body, by the cross-entropy. Then the body by CE + λ mean ‖z − P_y‖²/D
        (`PrototypePull`), P the sample-weighted class means of the trained bodies. The server averages bodies
        by n_k, and client i gets Σ_j α_ij head_j (`head_shares`). A client sends V and h (`TellsStatistics`)
        and the sums and counts of its classes beside its weights.

    Source:
        Xu, Tong and Huang, ICLR 2023, arXiv 2306.11867, and its code (JianXu95/FedPAC at 5770f4f): λ 1, one
        epoch of the head at rate 0.1, five of the body at 0.01 (0.02 for CIFAR), momentum 0.5, weight decay
        5e-4, batches of 50, 20 clients that all take part, and 1e-3 as `floor`.

    Scored: the client's own head and body after training, as in the code.

    Departures: the quadratic problems are solved exactly, where the code calls cvxpy, and lets a client keep
    its head if a matrix that was rounded is not positive semidefinite. A class without a global centre pulls
    nothing, and the mean is over the other samples; in the code the client's own centre of before the round
    stands in. A class that is absent in a round keeps its centre.
    """
    head = (
        (Pass("head", head_epochs, cross_entropy_only=True, lr_scale=head_lr_scale),) if head_epochs else ()
    )
    return Method(
        "FedPAC",
        terms=(PrototypePull(lam),) if lam else (),
        message=TellsStatistics(),
        passes=(*head, Pass("body")),
        personal=Scored("trained"),
        server=CombinedHeads(floor),
    )
