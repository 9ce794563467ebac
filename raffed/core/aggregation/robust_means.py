"""Robust rules in place of the mean of the uploads (config/aggregation.py), clipping and noise.

All uploads are taken in client order, so the result does not depend on the order in which they arrive.
Distances are computed in float64, over all shared weights. Uploads are averaged by the exact sums of the
plain mean. So a rule that keeps every upload with its own weight gives the mean bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from raffed.config.aggregation import GeometricMedian, Krum, MeanRule, MultiKrum, NormBound, Trimmed
from raffed.core.aggregation.exact_sums import SLICE, PointSum, plain_sum
from raffed.core.messages import ServerState, Upload
from raffed.core.params import Params
from raffed.core.server import Mean
from raffed.errors import UsageError

# Clipped updates and noise for differential privacy (config/sections.py), as functions of uploads.


def clip_update(w: Params, start: Params, limit: float) -> Params:
    """Return w^t + Δ · min(1, S / ‖Δ‖) for the update Δ = w − w^t.

    The norm is taken over all numbers together. If the update is short enough, `w` itself is returned.

    Args:
        w: The trained weights.
        start: The weights w^t that the client received, or 0 if it sends an update.
        limit: The largest allowed norm S.
    """
    update = w.flat.to(torch.float64) - start.flat.to(torch.float64)
    norm = float(update.norm())
    if not norm > limit:  # NaN is refused later, by the exact sums
        return w
    return Params.from_flat(
        w.layout, (start.flat.to(torch.float64) + update * (limit / norm)).to(torch.float32)
    )


def add_noise(w: Params, deviation: float, generator: torch.Generator) -> Params:
    """Return w + N(0, deviation²) on every number. Noise is drawn on the CPU, and none is drawn for 0."""
    if not deviation:
        return w

    def moved(t: Tensor) -> Tensor:
        noise = torch.randn(t.shape, generator=generator, dtype=torch.float64) * deviation
        return (t.to(torch.float64) + noise.to(t.device)).to(t.dtype)

    return Params({name: moved(t) for name, t in w.tensors.items()})


Point = Callable[[Sequence[Params], Params], Params]
"""What a rule does with points of the uploads: (points in client order, their plain mean) → one point."""


def robust_mean(
    mean: Mean, uploads: Sequence[Upload], server: ServerState, mean_w: Params, mean_b: Params
) -> tuple[Params, Params]:
    """Return what a robust rule makes of a round's weights and of its BatchNorm statistics.

    Args:
        mean: The weights p_k of the mean, and the rule.
        uploads: The uploads that count, in client order.
        server: The server's state w^t, b^t of the round.
        mean_w: The plain mean of the uploaded weights.
        mean_b: The plain mean of the uploaded statistics.

    Raises:
        UsageError: The clients also send messages, which the rule would not protect.
    """
    assert mean.rule is not None
    if sent := sorted({slot for upload in uploads for slot in upload.slots}):
        raise UsageError(
            f"federation.mean: clients also send messages ({', '.join(sent)}), which a robust rule would not "
            "protect; leave it out, or use another method"
        )
    p = mean.weights([upload.n or 0 for upload in uploads])
    weights, statistics = _rule(mean.rule, _Round([model.w for model in uploads], p, server.w), server.b)
    if mean.rule.buffers == "mean" or not len(mean_b):
        return weights([model.w for model in uploads], mean_w), mean_b
    return weights([model.w for model in uploads], mean_w), statistics([model.b for model in uploads], mean_b)


@dataclass(frozen=True)
class _Round:
    """The uploaded weights of a round, their weights p_k in the mean, and the weights w^t before it."""

    points: Sequence[Params]
    p: Sequence[float]
    start: Params


def _rule(rule: MeanRule, uploaded: _Round, statistics: Params) -> tuple[Point, Point]:
    """Return what is done with the weights, and with the statistics."""
    count = len(uploaded.points)
    if isinstance(rule, NormBound):
        return _bounded(rule, uploaded, statistics)
    if isinstance(rule, Krum):
        kept = rule.kept(count) if isinstance(rule, MultiKrum) else 1
        best = sorted(_nearest(uploaded.points, rule.f)[:kept])
        chosen = _combining([uploaded.p[i] if i in best else 0.0 for i in range(count)], uploaded.p)
        return chosen, chosen
    if isinstance(rule, GeometricMedian):
        combined = _combining(_weiszfeld(rule, uploaded), uploaded.p)
        return combined, combined
    cut = rule.cut(count) if isinstance(rule, Trimmed) else (count - 1) // 2
    plain = isinstance(rule, Trimmed) and not cut
    middle: Point = lambda points, mean: mean if plain else _middle(points, cut)  # noqa: E731
    return middle, middle


def _middle(points: Sequence[Params], cut: int) -> Params:
    """Return the mean of every number without its `cut` largest and smallest values."""
    parts = [part.sort(0).values[cut : len(points) - cut].mean(0) for part in _blocks(points)]
    return Params.from_flat(points[0].layout, torch.cat(parts).to(torch.float32))


def _combining(weights: Sequence[float], p: Sequence[float]) -> Point:
    """Return the weighted mean with weights proportional to these. It is the plain mean if they are p."""
    if list(weights) == list(p):
        return lambda points, mean: mean
    total = plain_sum(weights)
    shares = [(i, weight / total) for i, weight in enumerate(weights) if weight > 0]
    if len(shares) == 1:
        return lambda points, mean: points[shares[0][0]]

    def combined(points: Sequence[Params], mean: Params) -> Params:
        point_sum = PointSum()
        point_sum.add_all(
            [points[i] for i, _ in shares], [share for _, share in shares], ["a robust mean"] * len(shares)
        )
        return point_sum.value(mean)

    return combined


def _nearest(points: Sequence[Params], f: int) -> list[int]:
    """Return the positions of the uploads by Krum's sums of squared distances, the smallest first."""
    count = len(points)
    squared = torch.zeros(count, count, dtype=torch.float64)
    for part in _blocks(points):
        for i in range(count):
            squared[i] += (part - part[i]).square_().sum(1)
    others = [sorted(squared[i, [j for j in range(count) if j != i]].tolist()) for i in range(count)]
    scores = [plain_sum(distances[: max(1, count - f - 2)]) for distances in others]
    return sorted(range(count), key=lambda i: (scores[i], i))


def _weiszfeld(rule: GeometricMedian, uploaded: _Round) -> list[float]:
    """Return weights β_k such that Σ β_k w_k / Σ β_k is close to the weighted geometric median."""
    p, beta = torch.tensor(uploaded.p, dtype=torch.float64), torch.tensor(uploaded.p, dtype=torch.float64)
    before = distances = _distances(uploaded.points, beta)
    for _ in range(rule.iterations):
        beta = p / distances.clamp(min=rule.nu)
        distances = _distances(uploaded.points, beta)
        old, new = float((p * before).sum()), float((p * distances).sum())
        if abs(old - new) <= rule.tolerance * new:
            break
        before = distances
    return [float(weight) for weight in beta]


def _distances(points: Sequence[Params], beta: Tensor) -> Tensor:
    """Return the distance of every point from Σ β_k w_k / Σ β_k."""
    squared = torch.zeros(len(points), dtype=torch.float64)
    for part in _blocks(points):
        centre = (part * (beta / beta.sum())[:, None]).sum(0)
        squared += (part - centre).square_().sum(1)
    return squared.sqrt()


def _bounded(rule: NormBound, uploaded: _Round, statistics: Params) -> tuple[Point, Point]:
    """Return the mean of the updates, each scaled to a norm of at most S, and of the statistics likewise."""
    norms = [float(norm) for norm in _norms(uploaded.points, uploaded.start)]
    ordered = sorted(norms)
    limit = rule.bound or (ordered[(len(norms) - 1) // 2] + ordered[len(norms) // 2]) / 2
    if max(norms) <= limit:
        plain: Point = lambda points, mean: mean  # noqa: E731
        return plain, plain
    mean = _combining(uploaded.p, [])
    factors = [limit / norm if norm > limit else 1.0 for norm in norms]

    def weights(points: Sequence[Params], plain: Params) -> Params:
        return mean([clip_update(point, uploaded.start, limit) for point in points], plain)

    def shrunk(points: Sequence[Params], plain: Params) -> Params:
        return mean([_towards(b, statistics, by) for b, by in zip(points, factors, strict=True)], plain)

    return weights, shrunk


def _norms(points: Sequence[Params], start: Params) -> Iterator[Tensor]:
    for point in points:
        yield (point.flat.to(torch.float64) - start.flat.to(torch.float64)).norm()


def _towards(point: Params, start: Params, by: float) -> Params:
    """Return start + by · (point − start), computed in float64."""
    if by == 1.0:
        return point
    begin = start.flat.to(torch.float64)
    moved = begin + by * (point.flat.to(torch.float64) - begin)
    return Params.from_flat(point.layout, moved.to(torch.float32))


def _blocks(points: Sequence[Params]) -> Iterator[Tensor]:
    """Yield the points as float64 [m, s], a few coordinates at a time, so that no large copy is made."""
    flats = [point.flat for point in points]
    width = max(1, SLICE // len(points))
    for i in range(0, points[0].layout.size, width):
        yield torch.stack([flat[i : i + width] for flat in flats]).to(torch.float64)
