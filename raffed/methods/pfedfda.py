"""pFedFDA (McLaughlin and Su 2024): output layers that follow from Gaussian features, global and local."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed.config.validation import Doc, Range, checked
from raffed.core.context import Context, Received, ServerContext, Spec
from raffed.core.ingredients import Head, Personal
from raffed.core.messages import Summable, Wire
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.server import ServerRule
from raffed.errors import UsageError
from raffed.methods.gaussian_features import (
    Fit,
    GaussianHead,
    cross_validated,
    discriminant,
    fitted,
    interpolated,
    log_prior,
    packed,
    unpacked,
)

Beta = Literal["two", "one", "local", "global"]


class Gaussians(Wire):
    """The server's Gaussian features: class means [C, D], the upper triangle [D (D + 1)/2] of the covariance
    that all classes share, and which classes have a mean [C] bool.
    """

    mean: Tensor
    upper: Tensor
    known: Tensor

    def fit(self) -> Fit:
        """Return them as float64, with the whole covariance [D, D]."""
        width = self.mean.shape[1]
        return Fit(self.mean.double(), unpacked(self.upper.double(), width), self.known)


class GaussianSums(Summable):
    """What a client reports: its mixed statistics times its number of samples n.

    mean [C, D] and weight [C] (n, or 0 for a class without a mean), upper [D (D + 1)/2], and n as `count` [].
    """

    fraction_bits = 24

    mean: Tensor
    weight: Tensor
    upper: Tensor
    count: Tensor

    def averaged(self) -> Gaussians:
        """Return the sample-weighted means of a sum over clients."""
        mean = self.mean / self.weight.clamp(min=1)[:, None]
        return Gaussians(mean, self.upper / self.count.clamp(min=1), self.weight > 0)


class LocalPrior(Head):
    """Logits + log π_k, with π_k the client's class frequencies, which are smoothed by 1e-4."""

    def logits(self, a: Tensor, k: Context) -> Tensor:
        return a + log_prior(k.class_counts).to(a.dtype)


class LocalDiscriminant(Personal[None, GaussianSums, Gaussians]):
    """The client's output layer: the discriminant of β · local + (1 − β) · global Gaussians with its own
    prior.

    Local statistics are those of the body in `k.state` over the client's training set, in evaluation mode. β
    is found by cross-validation in two folds on the grid 0, 1/4, 1/2, 3/4, 1. The mixed statistics are sent.
    A client keeps nothing: between rounds the same is done with the server's new body and statistics.

    Attributes:
        beta: "two" for one β of the means and one of the covariance, "one" for both together, "local" for 1,
            and "global" for 0. As long as the server has no statistics, β is 1.
    """

    beta: str
    ridge: float

    def server_init(self, w: Params, spec: Spec) -> Gaussians:
        if "head.bias" not in w.names:
            raise UsageError(
                "pfedfda writes a bias into the output layer, and this network has none there; choose a "
                "network with one (--model-arg head_bias=true)"
            )
        width = spec.feature_dim
        zeros = torch.zeros(spec.num_classes, width), torch.zeros(width * (width + 1) // 2)
        return Gaussians(*zeros, torch.zeros(spec.num_classes, dtype=torch.bool))

    def mixed(self, k: Context[None, Gaussians]) -> Fit:
        """Return the interpolation of local and global statistics."""
        rows = list(k.features(k.state))
        z, y = torch.cat([one for one, _ in rows]).double(), torch.cat([one for _, one in rows])
        local, shared = fitted(z, y, k.spec.num_classes, self.ridge), k.server.fit()
        if not bool(shared.known.any()) or self.beta == "local":
            betas = (1.0, 1.0)
        elif self.beta == "global":
            betas = (0.0, 0.0)
        else:
            prior, separate = log_prior(k.class_counts), self.beta == "two"
            betas = cross_validated(z, y, shared, prior, separate=separate, ridge=self.ridge)
        return interpolated(local, shared, *betas)

    def finish(self, k: Context[None, Gaussians]) -> tuple[None, GaussianSums]:
        made, n = self.mixed(k), k.class_counts.sum()
        sums = (made.mean * n).float(), n * made.known.to(n.dtype), (packed(made.covariance) * n).float()
        return None, GaussianSums(*sums, n)

    def server_step(self, s: Gaussians, got: Received[GaussianSums], spec: Spec) -> Gaussians:
        return s if got.sum is None else got.sum.averaged()

    def model(self, k: Context[None, Gaussians]) -> State:
        head = discriminant(self.mixed(k), log_prior(k.class_counts))
        return State(with_head(k.w, head), k.state.b)


class GlobalDiscriminant(ServerRule[None]):
    """The mean of the bodies, under the discriminant of the new global Gaussians with equal priors."""

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        told = k.received["personal"].sum
        if not isinstance(told, GaussianSums):
            return None, mean
        classes = k.spec.num_classes
        equal = torch.zeros(classes, dtype=torch.float64) - torch.tensor(float(classes)).double().log()
        return None, with_head(mean, discriminant(told.averaged().fit(), equal))


def with_head(w: Params, head: GaussianHead) -> Params:
    """Return weights with another output layer."""
    new = {"head.weight": head.weight, "head.bias": head.bias}
    return Params({**w.tensors, **{n: t.to(w[n].device, w[n].dtype) for n, t in new.items()}}).clone()


@checked
def pfedfda(
    beta: Annotated[
        Beta,
        Doc(
            "How local and global statistics are mixed: by cross-validation with two β (means and "
            "covariance) or one, or only the local or the global ones."
        ),
    ] = "two",
    ridge: Annotated[
        float, Range(0.0, 1e3, open_low=True), Doc("What is added to the diagonal of a client's covariance.")
    ] = 1.0,
) -> Method:
    """pFedFDA: features are Gaussian for each class, and output layers follow from their statistics.

    Equation:
        The body is trained under the frozen global head a_c = Σ'⁻¹ μ_c, b_c = −½ μ_cᵀ a_c + log π_{k,c}, with
        Σ' = (1 − ε) Σ + ε (tr Σ/D) I and ε = 1e-4. Then the client mixes its own statistics with the global
        ones (`LocalDiscriminant`) and sends them; their sample-weighted means give the next global head. The
        first head is the network's own.

    Source:
        McLaughlin and Su, NeurIPS 2024; cj-mclaughlin/pFedFDA.

    The authors' runs: rate 0.01, momentum 0.5, weight decay 5e-4, batches of 50 without the short last one of
    an epoch (`--drop-last`), 5 epochs; 100 clients, of which 30 % take part in a round.

    The released code adds 1 to the diagonal of a client's covariance, and 1e-4 to all of its numbers, where
    the formula may mean 1e-4 on the diagonal alone. `ridge` is what is added to the diagonal. Without
    within-class variance a small one lets the output layer grow without bound: with 1e-4 training diverged on
    digits.

    Departures: the released code collects features over all epochs, while the body moves;
    here they are those of the trained body. It finds β by L-BFGS in ten iterations; here β is chosen from a
    grid. It starts from random class means; here there are none before the first round, and a class that
    nobody has held counts as the mean of the others. A class of one or two samples has its own mean also when
    a client is scored, where the released code takes the global one.
    """
    return Method(
        "pFedFDA",
        head=LocalPrior(),
        passes=(Pass("body"),),
        personal=LocalDiscriminant(beta, ridge),
        server=GlobalDiscriminant(),
    )
