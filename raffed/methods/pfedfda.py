"""pFedFDA (McLaughlin and Su 2024): output layers that follow from Gaussian features, global and local."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from raffed import Head, Method, Params, Pass, Personal, ServerRule, State, Summable, Wire
from raffed.config.validation import Doc, Range, checked
from raffed.core.context import Context, Received, ServerContext, Spec
from raffed.core.losses import one_hot
from raffed.errors import UsageError

# Gaussian features: class means and one covariance, their interpolation, and the linear discriminant.


EPSILON = 1e-4  # shrinkage of the covariance, and smoothing of the priors
GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS = 2


class Fit(NamedTuple):
    """Class means [C, D] and a covariance [D, D], float64, and which classes have a mean [C] bool."""

    mean: Tensor
    covariance: Tensor
    known: Tensor


class GaussianHead(NamedTuple):
    """An output layer: weight [C, D] and bias [C], float64."""

    weight: Tensor
    bias: Tensor


def fitted(z: Tensor, y: Tensor, classes: int, ridge: float) -> Fit:
    """Return the statistics of features.

    The covariance is that within classes, Σ (z − μ_y)(z − μ_y)ᵀ/(n − 1), plus the ridge on the diagonal.

    Args:
        z: Features [n, D], float64.
        y: Labels [n].
        classes: Number of classes C.
        ridge: What is added to the diagonal.
    """
    label = one_hot(y, classes).to(z.dtype)
    count = label.sum(0)
    mean = label.T @ z / count.clamp(min=1)[:, None]
    gap = z - mean[y]
    eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    return Fit(mean, gap.T @ gap / max(len(y) - 1, 1) + ridge * eye, count > 0)


def interpolated(local: Fit, shared: Fit, of_means: float, of_covariance: float) -> Fit:
    """Return β · local + (1 − β) · global. A class that one side does not know has the other side's mean."""
    mean = of_means * local.mean + (1.0 - of_means) * shared.mean
    mean = torch.where(shared.known[:, None], mean, local.mean)
    mean = torch.where(local.known[:, None], mean, shared.mean)
    covariance = of_covariance * local.covariance + (1.0 - of_covariance) * shared.covariance
    return Fit(mean, covariance, local.known | shared.known)


def discriminant(fit: Fit, log_priors: Tensor, epsilon: float = EPSILON) -> GaussianHead:
    """Return the linear discriminant: a_c = Σ'⁻¹ μ_c, b_c = −½ μ_cᵀ a_c + log π_c.

    Σ' = (1 − ε) Σ + ε (tr Σ/D) I. Its softmax is the posterior of the classes under these Gaussians. A class
    without a mean gets the mean of the others.

    Args:
        fit: The statistics.
        log_priors: log π [C].
        epsilon: ε, the shrinkage.
    """
    known = fit.known.to(fit.mean.dtype)[:, None]
    middle = (known * fit.mean).sum(0) / known.sum().clamp(min=1)
    mean = torch.where(fit.known[:, None], fit.mean, middle)
    width = mean.shape[1]
    eye = torch.eye(width, dtype=mean.dtype, device=mean.device)
    shrunk = (1.0 - epsilon) * fit.covariance + epsilon * fit.covariance.trace() / width * eye
    weight = torch.linalg.solve(shrunk, mean.T).T
    return GaussianHead(weight, -0.5 * (mean * weight).sum(1) + log_priors.to(mean.dtype))


def log_prior(class_counts: Tensor) -> Tensor:
    """Return log π [C], float64: class frequencies, with 1e-4 added to each, divided by their sum."""
    counts = class_counts.double()
    smoothed = counts / counts.sum().clamp(min=1) + EPSILON
    return (smoothed / smoothed.sum()).log()


def cross_validated(
    z: Tensor, y: Tensor, shared: Fit, log_priors: Tensor, *, separate: bool, ridge: float
) -> tuple[float, float]:
    """Return the β of the means and of the covariance with the smallest cross-entropy in two folds.

    In each class the samples go to the folds in turn; a class of one sample is left out. Of equally good
    values the smallest are taken. Without two samples of a class both are 0.

    Args:
        z: Features [n, D], float64.
        y: Labels [n].
        shared: The global statistics.
        log_priors: log π [C] of the client.
        separate: Whether the two may differ.
        ridge: What is added to the diagonal of a covariance.
    """
    classes = len(log_priors)
    label = one_hot(y, classes)
    turn = (label.cumsum(0) * label).sum(1) - 1  # how many samples of its class come before
    enough = label.sum(0)[y] >= FOLDS
    if not bool(enough.any()):
        return 0.0, 0.0
    folds = []
    for fold in range(FOLDS):
        held = enough & (turn % FOLDS == fold)
        rest = enough & ~held
        folds.append((fitted(z[rest], y[rest], classes, ridge), z[held], y[held]))
    tried = list(product(GRID, GRID)) if separate else [(beta, beta) for beta in GRID]

    def loss(betas: tuple[float, float]) -> float:
        total = 0.0
        for local, points, labels in folds:
            head = discriminant(interpolated(local, shared, *betas), log_priors)
            logits = points @ head.weight.T + head.bias
            total += float(torch.nn.functional.cross_entropy(logits, labels))
        return total

    return min(tried, key=loss)


def packed(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix [D, D], row by row, as [D (D + 1)/2]."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns]


def unpacked(upper: Tensor, width: int) -> Tensor:
    """Return the symmetric matrix [D, D] of an upper triangle."""
    rows, columns = torch.triu_indices(width, width)
    matrix = upper.new_zeros(width, width)
    matrix[rows, columns] = upper
    matrix[columns, rows] = upper
    return matrix


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
        z, y = torch.cat([z for z, _ in rows]).double(), torch.cat([y for _, y in rows])
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
        fit, n = self.mixed(k), k.class_counts.sum()
        sums = (fit.mean * n).float(), n * fit.known.to(n.dtype), (packed(fit.covariance) * n).float()
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
