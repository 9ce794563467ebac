"""Robust means, and the compression of uploads."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest
import torch

from raffed.config.aggregation import (
    CompressionRule,
    GeometricMedian,
    Krum,
    MeanRule,
    Median,
    MultiKrum,
    NormBound,
    Quantize,
    TopK,
    Trimmed,
)
from raffed.core.aggregation.robust_means import robust_mean
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.ingredients.base import compressed
from raffed.core.messages import ServerState, Summable, Upload
from raffed.core.params import Params
from raffed.core.seeds import generator
from raffed.core.server import Mean
from raffed.errors import UsageError
from tests.tiny import body_point as point

# Robust rules in place of the mean: worked examples, laws and breakdown points.
#
# The points U and the numbers of the examples were computed from the papers' formulas by hand.

U = [(1.0, 10.0), (2.0, -1.0), (3.0, 0.0), (4.0, 2.0), (100.0, 1.0)]
RULES: list[MeanRule] = [
    Median(),
    Trimmed(),
    Krum(),
    MultiKrum(),
    GeometricMedian(),
    NormBound(),
    NormBound(bound=0.5),
]
Points = Sequence[Sequence[float]]


def combined(
    rule: MeanRule,
    weights: Points,
    sizes: Sequence[int] | None = None,
    statistics: Points | None = None,
    order: Sequence[int] = (),
) -> tuple[list[float], list[float]]:
    """What a rule makes of uploads, by way of the server's sums, from w^t = 0 and b^t = 1."""
    first = statistics or [[2.0]] * len(weights)
    uploads = [
        Upload(n, point(*w), Params({"v": torch.tensor(b)}), {})
        for n, w, b in zip(sizes or [1] * len(weights), weights, first, strict=True)
    ]
    mean = Mean(by="samples", rule=rule)
    server = ServerState(0, point(*[0.0] * len(weights[0])), Params({"v": torch.ones(len(first[0]))}), {})
    sums = UploadAccumulator(keep=True)
    shares = mean.weights([one.n or 0 for one in uploads])
    for client in order or range(len(uploads)):
        sums.add(client, shares[client], uploads[client], "test")
    mean_w, mean_b, received = sums.finish(server)
    kept = [one for one in received["server"].each if isinstance(one, Upload)]
    w, b = robust_mean(mean, kept, server, mean_w, mean_b)
    return w["body.w"].tolist(), b["v"].tolist()


def weights_of(rule: MeanRule, points: Points, sizes: Sequence[int] | None = None) -> list[float]:
    return combined(rule, points, sizes)[0]


def test_the_median_of_an_odd_number_is_the_middle_value_and_of_an_even_one_the_mean_of_two() -> None:
    assert weights_of(Median(), U) == [3.0, 1.0]
    assert weights_of(Median(), U[:4]) == [2.5, 1.0]


@pytest.mark.parametrize(("beta", "kept"), [(0.0, [22.0, 2.4]), (0.2, [3.0, 1.0]), (0.4, [3.0, 1.0])])
def test_a_trimmed_mean_leaves_out_the_ends(beta: float, kept: list[float]) -> None:
    """β = 0.2 keeps (2, 3, 4) and (0, 1, 2); β = 0.4 keeps the middle one, which is the same here."""
    assert weights_of(Trimmed(beta=beta), U) == pytest.approx(kept)


def test_krum_takes_the_point_with_the_smallest_sum_of_distances() -> None:
    """f = 1 of five: the two nearest others count. The sums are 177, 15, 7, 18 and 18627."""
    assert weights_of(Krum(f=1), U) == [3.0, 0.0]


def test_multi_krum_averages_the_smallest_sums_by_their_samples() -> None:
    """The three smallest are (3, 0), (2, −1) and (4, 2), whose mean is (3, 1/3)."""
    assert weights_of(MultiKrum(f=1, keep=3), U) == pytest.approx([3.0, 1 / 3])
    weighed = weights_of(MultiKrum(f=1, keep=3), U, sizes=[7, 1, 2, 1, 7])
    assert weighed == pytest.approx([(2 + 2 * 3 + 4) / 4, (-1 + 0 + 2) / 4])


def test_multi_krum_that_keeps_all_is_the_mean_bit_for_bit() -> None:
    assert weights_of(MultiKrum(f=1, keep=5), U) == weights_of(GeometricMedian(iterations=0), U)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, (22.0, 2.4)),
        (1, (8.4046251, 2.4336672)),
        (2, (4.5028836, 1.9913781)),
        (3, (3.9091833, 1.7595673)),
        (4, (3.9076107, 1.7927230)),
    ],
)
def test_weiszfeld_s_steps_are_those_of_the_formula(steps: int, expected: tuple[float, float]) -> None:
    rule = GeometricMedian(iterations=steps, tolerance=0.0)
    assert weights_of(rule, U) == pytest.approx(list(expected), abs=2e-6)


def test_the_geometric_median_of_scalars_is_their_median() -> None:
    """0, 1, 10: after 200 steps the limit 1, to the smallest distance ν."""
    assert weights_of(
        GeometricMedian(iterations=200, tolerance=0.0), [[0.0], [1.0], [10.0]]
    ) == pytest.approx([1.0], abs=1e-4)


def test_a_norm_bound_scales_long_updates_only() -> None:
    """From w^t = 0: (3, 4) becomes (0.6, 0.8), and (0.3, 0.4) stays."""
    assert weights_of(NormBound(bound=1.0), [[3.0, 4.0], [0.3, 0.4]]) == pytest.approx([0.45, 0.6])


@pytest.mark.parametrize("rule", RULES[:6], ids=str)
def test_equal_uploads_are_their_own_mean(rule: MeanRule) -> None:
    """Bit for bit, by any rule but a fixed bound. 0.1 is a number that float32 does not hold exactly."""
    same = [[0.1, -0.7]] * 7
    assert weights_of(rule, same) == point(0.1, -0.7)["body.w"].tolist()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_order_in_which_uploads_arrive_changes_no_bit(rule: MeanRule) -> None:
    orders = ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [1, 0, 4, 3, 2])
    one, *others = (combined(rule, U, order=order) for order in orders)
    assert others == [one, one]


@pytest.mark.parametrize(
    "rule", [Median(), Trimmed(beta=0.3), Krum(f=2), MultiKrum(f=2), GeometricMedian(iterations=100)], ids=str
)
def test_two_attackers_of_seven_do_not_move_a_robust_rule_beyond_the_honest_clients(rule: MeanRule) -> None:
    """The breakdown points of all five are above 2/7; the mean has none."""
    honest = [[0.0, 1.0], [0.5, 1.5], [0.2, 1.2], [0.4, 1.1], [0.3, 1.3]]
    found = weights_of(rule, [*honest, [1e5, -1e5], [1e5, 1e5]])
    slack = 1e-4 if isinstance(rule, GeometricMedian) else 0.0
    assert -slack <= found[0] <= 0.5 + slack
    assert 1.0 - slack <= found[1] <= 1.5 + slack
    assert weights_of(GeometricMedian(iterations=0), [*honest, [1e5, -1e5], [1e5, 1e5]])[0] > 1e4


STATISTICS = [[1.0], [2.0], [3.0], [4.0], [90.0]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Median(), 3.0),
        (Trimmed(), 3.0),
        (Krum(f=1), 3.0),  # of the chosen client
        (MultiKrum(f=1, keep=3), 3.0),  # of clients 1, 2 and 3
        (Median(buffers="mean"), 20.0),
        (Krum(f=1, buffers="mean"), 20.0),
    ],
    ids=str,
)
def test_statistics_are_treated_as_the_weights_are_or_averaged(rule: MeanRule, expected: float) -> None:
    assert combined(rule, U, statistics=STATISTICS)[1] == pytest.approx([expected])


class Beside(Summable):
    number: float


def test_messages_that_a_rule_would_not_protect_are_refused() -> None:
    sent = [Upload(1, point(0.0), Params({}), {"term-Mine": Beside(1.0)})]
    server = ServerState(0, point(0.0), Params({}), {})
    with pytest.raises(UsageError, match="term-Mine"):
        robust_mean(Mean(rule=Median()), sent, server, server.w, server.b)


@pytest.mark.parametrize(
    ("rule", "uploads", "why"),
    [
        (Krum(f=1), 4, "2f \\+ 3 = 5 uploads"),
        (MultiKrum(f=2), 6, "2f \\+ 3 = 7 uploads"),
        (MultiKrum(f=0, keep=9), 8, "keep = 9"),
        (Trimmed(beta=0.2), 4, "it needs 5 or more"),
    ],
)
def test_too_few_uploads_are_named_and_just_enough_are_enough(rule: MeanRule, uploads: int, why: str) -> None:
    assert re.search(why, rule.why_not(uploads))
    assert not rule.why_not(uploads + 1)


# Compression of uploads: which numbers are sent, how they are rounded, and how many bytes that takes.


def sent(rule: CompressionRule, w: Params, start: Params, round: int = 0) -> Params:
    return compressed(rule, w, start, generator(0, "compression", round))


def test_the_largest_changes_are_sent_and_the_others_stay_as_received() -> None:
    """Updates from (1, 1, 1, 1) are (2, −3, 0.5, −1), of which half are sent."""
    found = sent(TopK(0.5), point(3.0, -2.0, 1.5, 0.0), point(1.0, 1.0, 1.0, 1.0))
    assert found["body.w"].tolist() == [3.0, -2.0, 1.0, 1.0]


def test_k_is_counted_over_all_tensors() -> None:
    """One of two tensors has all large changes, and k = 2 of 4."""
    w = Params({"body.w": torch.tensor([5.0, -6.0]), "head.b": torch.tensor([1.0, 2.0])})
    found = sent(TopK(0.5), w, w.zeros())
    assert [found["body.w"].tolist(), found["head.b"].tolist()] == [[5.0, -6.0], [0.0, 0.0]]


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_what_is_sent_is_a_whole_number_of_steps_and_at_most_one_step_away(bits: int) -> None:
    """The largest change is exactly representable. No other is further away than one step."""
    start = torch.randn(400, generator=torch.Generator().manual_seed(1))
    update = torch.randn(400, generator=torch.Generator().manual_seed(2))
    found = sent(Quantize(bits), Params({"w": start + update}), Params({"w": start}))["w"].double()
    made = (start + update).double() - start.double()
    step = float(made.abs().max()) / (2 ** (bits - 1) - 1)
    steps = (found - start.double()) / step
    assert float((steps - steps.round()).abs().max()) < 2e-6 / step  # the sum is rounded to float32
    assert float((found - start.double() - made).abs().max()) <= step + 1e-6
    assert len(set(steps.round().tolist())) <= 2**bits - 1
    largest = int(made.abs().argmax())
    assert found[largest].item() == pytest.approx((start + update)[largest].item(), abs=1e-6)


def test_rounding_is_right_in_the_mean() -> None:
    """With two bits a step is max |Δ|. A change of 0.3 is sent as 1 in three of ten cases."""
    n, zero = 20_000, point(*[0.0] * 20_001)
    found = sent(Quantize(2), point(1.0, *[0.3] * n), zero)["body.w"][1:]
    assert set(found.tolist()) == {0.0, 1.0}
    assert float(found.mean()) == pytest.approx(0.3, abs=5 * math.sqrt(0.3 * 0.7 / n))
    other = sent(Quantize(2), point(1.0, *[0.3] * n), zero, round=1)["body.w"][1:]
    assert not torch.equal(found, other)


@pytest.mark.parametrize(
    ("rule", "sizes", "expected"),
    [
        (TopK(1.0), [1000, 24], 4 * 1024),
        (TopK(0.01), [1000, 24], 11 * 4 + 11 * 4),  # 11 numbers with their places
        (TopK(0.5), [1000, 24], 512 * 4 + 128),  # a bit for each place is shorter
        (Quantize(32), [1000, 24], 4 * 1024),
        (Quantize(8), [1000, 24], 1024 + 2 * 4),  # a byte for each number, and a step for each tensor
        (Quantize(3), [1000, 1], 376 + 2 * 4),
    ],
)
def test_bytes_of_an_upload(rule: CompressionRule, sizes: list[int], expected: int) -> None:
    assert rule.nbytes(sizes) == expected
