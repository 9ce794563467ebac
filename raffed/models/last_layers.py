"""The last layers of a network: how long its features are, where its head begins, and simplex frames.

These arguments are the same for every network, also for networks of one's own. They are declared here once.
Without them a network stays as its factory makes it.

    net = build("lenet", (1, 32, 32), 10, 7, features="l2", head_init="etf", head_bias=False)

is a cosine classifier: logits = s · ẑ · w_c with ẑ = z/‖z‖ and unit rows w_c. Terms of a loss then see s ẑ
as the feature. The head stays an ordinary linear layer, so that methods treat it like any other; one that
freezes it trains the body only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.config.validation import Doc, Range, Value, checked
from raffed.core import seeds
from raffed.errors import UsageError
from raffed.models.net import Net
from raffed.models.own.wrapping import OwnNet

# Heads whose rows are spread apart by construction: orthogonal rows, a simplex ETF, and a sparse one.
#
# A simplex equiangular tight frame (ETF) of C classes is C unit vectors of which any two have the cosine
# −1/(C − 1), the smallest that is possible for all pairs at once. All is computed in float64 and rounded
# once, so that processors that round differently still agree on the float32 numbers.


ZEROS = 0.6  # share of entries of a sparse ETF that are 0
NORM = 0.1  # length of its rows
STEPS, RATE = 1000, 1e-3  # of Adam, which spreads the rows of a sparse ETF apart
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual numbers


def orthogonal(classes: int, dim: int, seed: int) -> Tensor:
    """Return C orthonormal rows [C, D], drawn uniformly.

    Args:
        classes: Number of classes C, at most D.
        dim: Length D of a feature.
        seed: The rows depend on this alone.

    Raises:
        UsageError: C is above D.
    """
    _check("orthogonal", classes, dim)
    drawn = torch.randn(dim, classes, generator=_generator(seed), dtype=torch.float64)
    basis, upper = torch.linalg.qr(drawn)
    rows: Tensor = (basis * upper.diagonal().sign()).T
    return rows.to(torch.float32)


def simplex_etf(classes: int, dim: int, seed: int) -> Tensor:
    """Return a simplex ETF [C, D]: √(C/(C − 1)) (I − 11ᵀ/C) Uᵀ with random orthonormal columns U [D, C].

    U comes from the QR decomposition of uniform numbers, as in the code of FedGELA, FedETF and FedLoGe.
    Arguments and errors are those of `orthogonal`; C must be at least 2.
    """
    return _simplex(classes, dim, _generator(seed)).to(torch.float32)


@functools.lru_cache(maxsize=32)
def sparse_etf(classes: int, dim: int, seed: int) -> Tensor:
    """Return FedLoGe's sparse ETF [C, D]: exactly int(0.6 C D) entries are 0, and rows have the length 0.1.

    The positions of the zeros are random; a row is never all zeros. The other entries begin as those of a
    simplex ETF. Adam then minimises Σ_c (‖m_c‖ − 0.1)² − mean_c (smallest angle between m_c and another row).
    It takes 1,000 steps of rate 1e-3, where the official code takes 10,000 of 1e-4, which spread the rows
    further apart: in 512 dimensions the mean angle between a row and its nearest is 0.4 degrees larger for 10
    classes (0.6 for 20 in 128 dimensions) and 1.8 for 100. At the end the rows are scaled to their length
    exactly.

    Arguments and errors are those of `simplex_etf`. The result must not be changed in place.
    """
    generator = _generator(seed)
    rows = _simplex(classes, dim, generator)
    kept = _kept(classes, dim, generator)
    spread = _spread(rows * kept, kept)
    lengths: Tensor = spread.norm(dim=1, keepdim=True)
    return (spread * (NORM / lengths)).to(torch.float32)


def _spread(rows: Tensor, kept: Tensor) -> Tensor:
    """Take the steps of Adam. torch's optimiser would import torch's compiler, which takes seconds."""
    mean, square = torch.zeros_like(rows), torch.zeros_like(rows)
    for step in range(1, STEPS + 1):
        with torch.enable_grad():
            live = rows.requires_grad_()
            (slope,) = torch.autograd.grad(_crowding(live), live)
        slope = slope * kept
        mean = BETA1 * mean + (1 - BETA1) * slope
        square = BETA2 * square + (1 - BETA2) * slope.square()
        root = (square / (1 - BETA2**step)).sqrt() + EPSILON
        rows = rows.detach() - RATE * (mean / (1 - BETA1**step)) / root
    return rows


def _crowding(rows: Tensor) -> Tensor:
    norms = rows.norm(dim=1)
    unit = rows / norms[:, None]
    cosines = (unit @ unit.T).masked_fill(torch.eye(len(rows), dtype=torch.bool), -1.0)
    nearest = cosines.max(dim=1).values.clamp(-0.99999, 0.99999)
    crowding: Tensor = (norms - NORM).square().sum() - nearest.acos().mean()
    return crowding


def _kept(classes: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return which entries are not 0 [C, D], as 0 and 1. It is drawn again until no row is empty."""
    zeros = int(ZEROS * classes * dim)
    while True:
        kept = torch.ones(classes * dim, dtype=torch.float64)
        kept[torch.randperm(classes * dim, generator=generator)[:zeros]] = 0.0
        kept = kept.view(classes, dim)
        if bool(kept.any(1).all()):
            return kept


def _simplex(classes: int, dim: int, generator: torch.Generator) -> Tensor:
    if classes < 2:
        raise UsageError(f"head_init = 'etf' needs at least 2 classes, and there is {classes}")
    _check("etf", classes, dim)
    basis, _ = torch.linalg.qr(torch.rand(dim, classes, generator=generator, dtype=torch.float64))
    centred = torch.eye(classes, dtype=torch.float64) - 1.0 / classes
    rows: Tensor = math.sqrt(classes / (classes - 1)) * (basis @ centred).T
    return rows


def _check(name: str, classes: int, dim: int) -> None:
    if classes > dim:
        raise UsageError(
            f"head_init = {name!r} needs features of at least as many numbers as there are classes, and "
            f"{dim} is below {classes}; use a network with wider features"
        )


def _generator(seed: int) -> torch.Generator:
    return seeds.generator(seed, "head")


FRAMES: Mapping[str, Callable[[int, int, int], Tensor]] = {
    "orthogonal": orthogonal,
    "etf": simplex_etf,
    "sparse_etf": sparse_etf,
}
# A sparse ETF starts from an ETF and demands the same of a network, but takes a second to compute
QUICKER = {"sparse_etf": "etf"}
Features = Literal["raw", "l2", "ln", "bn"]
HeadInit = Literal["default", "orthogonal", "etf", "sparse_etf"]


class UnitFeatures(nn.Module):
    """s · z/‖z‖: features [B, D] of length s. The feature 0 stays 0.

    Args:
        scale: s, or where it begins if it is learned.
        learn: Whether s is a parameter.
    """

    def __init__(self, scale: float, learn: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([float(scale)])) if learn else float(scale)

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=-1) * self.scale


class FeatureNorm(nn.BatchNorm1d):
    """BatchNorm over the features [B, D]. A batch of one sample is normalised by the running statistics,
    because one sample has no variance.
    """

    def forward(self, z: Tensor) -> Tensor:
        if self.training and len(z) == 1:
            return F.batch_norm(z, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(z)


@dataclass(frozen=True)
class LastLayers:
    """What `last_layers` was asked for."""

    feature_layer: bool
    features: str
    feature_scale: float
    learn_scale: bool
    head_init: str

    def put_into(self, net: Net, seed: int) -> None:
        """Change a network accordingly.

        Args:
            net: The network.
            seed: Seed of its weights, on which a drawn head depends.

        Raises:
            UsageError: The head cannot be drawn, because there are more classes than features have numbers.
        """
        net.last_layers = dataclasses.astuple(self)
        if self.feature_layer:
            with seeds.forked(seeds.seed(seed, "head", 1)):  # apart from the rows of the head
                _end_body(net, "feature_layer", nn.Linear(net.feature_dim, net.feature_dim))
        if self.features == "l2":
            _end_body(net, "unit", UnitFeatures(self.feature_scale, self.learn_scale))
        elif self.features == "ln":
            _end_body(net, "centred", nn.LayerNorm(net.feature_dim, elementwise_affine=False))
        elif self.features == "bn":
            _end_body(net, "feature_norm", FeatureNorm(net.feature_dim))
        if self.head_init != "default":
            rows = FRAMES[self.head_init](net.head.out_features, net.feature_dim, seed)
            with torch.no_grad():
                net.head.weight.copy_(rows)
                if net.head.bias is not None:
                    net.head.bias.zero_()


def quicker(args: Mapping[str, Value]) -> dict[str, Value]:
    """Return arguments of a network that is only looked at, not trained.

    Its parameters have the same names and shapes, and it is refused for the same reasons.
    """
    head = args.get("head_init")
    return {**args, "head_init": QUICKER[head]} if isinstance(head, str) and head in QUICKER else dict(args)


@checked
def last_layers(
    *,
    feature_layer: Annotated[
        bool,
        Doc(
            "Whether the body ends with one more linear layer, as wide as the features and without an "
            "activation, so that features may be negative."
        ),
    ] = False,
    features: Annotated[
        Features,
        Doc(
            "The features that the head gets: as they are (raw), of one length (l2), with mean 0 and "
            "variance 1 in every sample (ln), or after BatchNorm (bn)."
        ),
    ] = "raw",
    feature_scale: Annotated[
        float, Range(0.0, 1e6, open_low=True), Doc("s, length of the features with features = l2.")
    ] = 1.0,
    learn_scale: Annotated[bool, Doc("Whether s is learned; then feature_scale is its first value.")] = True,
    head_init: Annotated[
        HeadInit,
        Doc(
            "The head's initial rows: as the network has them (default), orthonormal (orthogonal), a simplex "
            "equiangular tight frame (etf), or FedLoGe's sparse one (sparse_etf); its bias is then 0. A file "
            "of weights (--init) replaces them, but for a method that requires such rows."
        ),
    ] = "default",
) -> LastLayers:
    """Return what is done to the last layers of a network.

    Raises:
        UsageError: A value is not possible, or has no effect.
    """
    if features != "l2" and (feature_scale != 1.0 or not learn_scale):
        raise UsageError(
            f"feature_scale = {feature_scale:g} and learn_scale = {str(learn_scale).lower()} have no effect "
            f"with features = {features!r}; also give features = l2, or leave them out"
        )
    return LastLayers(feature_layer, features, feature_scale, learn_scale, head_init)


def _end_body(net: Net, name: str, layer: nn.Module) -> None:
    """Put a layer behind the last layer of the body; where there is a projection, behind its last layer.

    Then a part of the network that ends with the projection also has this layer.
    """
    if isinstance(net, OwnNet):
        net.end_body(name, layer)
        return
    last = getattr(net.body, "projection", net.body)
    if isinstance(last, nn.Sequential):
        last.add_module(name, layer)
    else:
        net.body = nn.Sequential(OrderedDict([("net", net.body), (name, layer)]))
