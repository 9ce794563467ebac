"""Exact sums: the same bits for any order and any grouping of clients, near float64, and loud outside the
range.

Bound. A contribution p_i·w_i is rounded once to a multiple of 2^-44, so it is off by at most 2^-45; n clients
by n·2^-45. The int64 total becomes float64 (relative 2^-53) and then float32 (relative 2^-24).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.core.aggregation.exact_sums import BITS, PointSum, WireSum, from_fixed, to_fixed
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.messages import Summable
from raffed.core.params import Params
from raffed.errors import NumericsError
from tests.tiny import of_kind, same_bits


class Sums(Summable):
    fraction_bits = 24

    total: Tensor
    count: Tensor
    point: Params
    n: int
    x: float


def message(g: torch.Generator) -> Sums:
    point = Params({"a": torch.randn(3, generator=g), "b": torch.randn(2, 2, generator=g)})
    count = torch.randint(0, 9, (4,), generator=g)
    return Sums(
        torch.randn(2, 3, generator=g), count, point, int(count.sum()), float(torch.randn((), generator=g))
    )


def point_sum(values: list[Tensor], weights: list[float], order: list[int], cuts: list[int]) -> Params:
    """The sum in a given order, each stretch between cuts folded by an actor of its own."""
    whole = PointSum()
    for chunk in np.split(np.array(order), sorted(cuts)):
        part = PointSum()
        for i in chunk:
            part.add(Params({"w": values[i]}), weights[i], "test")
        whole.merge(part.export())
    return whole.value(Params({"w": values[0]}))


@st.composite
def federations(draw: Any) -> tuple[list[Tensor], list[float], list[int], list[int]]:
    n = draw(st.integers(1, 8))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    scales = draw(st.lists(st.sampled_from([1e-6, 1.0, 200.0, 1e3, 2e5]), min_size=n, max_size=n))
    sizes = torch.randint(1, 1000, (n,), generator=g).tolist()
    values = [(2 * torch.rand(20, generator=g) - 1) * scale for scale in scales]
    order = draw(st.permutations(range(n)))
    cuts = draw(st.lists(st.integers(0, n), max_size=4))
    return values, [s / sum(sizes) for s in sizes], list(order), cuts


@given(federations())
def test_any_order_and_any_grouping_of_clients_gives_the_same_bits(case: Any) -> None:
    values, weights, order, cuts = case
    plain = point_sum(values, weights, list(range(len(values))), [])
    assert same_bits(point_sum(values, weights, order, cuts), plain)


@given(federations())
def test_the_sum_differs_from_float64_by_less_than_the_stated_bound(case: Any) -> None:
    values, weights, order, _ = case
    exact = sum(v.double() * p for v, p in zip(values, weights, strict=True))
    got = point_sum(values, weights, order, []).flat[:20].double()
    bound = (
        len(values) * 2.0**-45
        + exact.abs() * (2.0**-24 + 2.0**-50)
        + len(values) * 2.0**-52 * exact.abs().max()
    )
    assert bool(((got - exact).abs() <= bound).all())


@given(federations(), st.booleans())
def test_the_total_is_the_sum_of_the_integers_that_single_points_round_to(case: Any, at_once: bool) -> None:
    """However large the points are: Σ_i round(p_i · w_i · 2^44), in Python's integers."""
    values, weights, order, _ = case
    total = PointSum()
    points = [Params({"w": values[i]}).clone() for i in order]
    if at_once:
        total.add_all(points, [weights[i] for i in order], ["test"] * len(order))
    else:
        for i, point in zip(order, points, strict=True):
            total.add(point, weights[i], "test")
    exact = [
        sum(round(float(v[j]) * (p * 2.0**44)) for v, p in zip(values, weights, strict=True))
        for j in range(20)
    ]
    got = total.export()
    assert got is not None
    assert got[:20].tolist() == exact


@given(st.integers(0, 10**6), st.permutations(range(5)), st.lists(st.integers(0, 5), max_size=3))
def test_summed_messages_have_the_same_bits_in_any_order_and_grouping(
    seed: int, order: list[int], cuts: list[int]
) -> None:
    g = torch.Generator().manual_seed(seed)
    wires = [message(g) for _ in range(5)]
    plain, whole = WireSum(), WireSum()
    for wire in wires:
        plain.add(wire, "test")
    for chunk in np.split(np.array(order), sorted(cuts)):
        if len(chunk):
            part = WireSum()
            for i in chunk:
                part.add(wires[i], "test")
            whole.merge(part.export())
    a, b = plain.value(), whole.value()
    assert isinstance(a, Sums)
    assert isinstance(b, Sums)
    assert same_bits(a, b)
    assert (a.n, a.x) == (b.n, b.x)
    assert whole.count == 5


def test_integer_fields_are_added_exactly_where_float32_would_lose_ones() -> None:
    """2^24 + 1 + 1 + 1 = 16,777,219, which float32 cannot hold."""
    total = WireSum()
    for n in (2**24, 1, 1, 1):
        total.add(Sums(torch.zeros(1), torch.tensor([n]), Params({}), n, 0.0), "test")
    value = of_kind(total.value(), Sums)
    assert value.count.tolist() == [16_777_219]
    assert value.count.dtype == torch.int64
    assert value.n == 16_777_219
    assert isinstance(value.n, int)


def test_the_mean_of_equal_points_is_that_point_to_the_last_bit_above_the_quantum() -> None:
    """Three thirds of w: off by at most 3·2^-45 + a float64 rounding, below half an ulp of float32 for
    |w| ≥ 2^-19.
    """
    w = torch.tensor([2.0**-19, 0.1, -3.7, 12345.678])
    got = point_sum([w, w, w], [1 / 3] * 3, [2, 0, 1], [1])
    assert torch.equal(got["w"], w)


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), -float("inf"), 2.0**18 * 1.01, -(2.0**18) * 1.01]
)
def test_a_value_that_is_not_finite_or_out_of_range_names_the_tensor(bad: float) -> None:
    w = Params({"body.fc": torch.zeros(3), "head.weight": torch.tensor([0.0, bad])}).clone()
    with pytest.raises(NumericsError, match=r"round 3, client 2, tensor head\.weight.*2\^18"):
        PointSum().add(w, 1.0, "FedAvg, round 3, client 2")


def test_weights_beyond_the_range_never_wrap_round_silently() -> None:
    """Each of 4 clients sends 4·0.99·2^18: a quarter of it fits, the sum would need 2^63.99 and come back
    negative.
    """
    w = torch.tensor([4 * 0.99 * 2.0**18])
    with pytest.raises(NumericsError, match="range of exact sums"):
        point_sum([w] * 4, [0.25] * 4, [0, 1, 2, 3], [2])


@pytest.mark.parametrize("grouped", [False, True])
def test_weights_that_add_up_to_more_than_1_narrow_the_range(grouped: bool) -> None:
    """FedBuff's rate η = 8 makes 8 · 2^15 = 2^18 of eight clients, and 8 · 2.5e5 would come back negative."""
    last, beyond = (Params({"w": torch.tensor([x, -x])}).clone() for x in (2.0**15, 2.5e5))
    total = PointSum(8.0)
    for points in ([last] * 8, [beyond] * 8):
        if points[0] is beyond:
            with pytest.raises(NumericsError, match=r"outside ±2\^15, the range of exact sums"):
                total.add_all(points, [1.0] * 8, ["a client"] * 8)
        elif grouped:
            total.add_all(points, [1.0] * 8, ["a client"] * 8)
        else:
            for point in points:
                total.add(point, 1.0, "a client")
    assert total.value(last)["w"].tolist() == [2.0**18, -(2.0**18)]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_sum_of_messages_beyond_the_range_never_wraps_round_silently(grouped: bool) -> None:
    """24 fraction bits hold ±2^38; three messages of 0.45 · 2^38 add up to more, and eleven to more than
    int64 holds.
    """
    total = WireSum()
    wire = Sums(torch.tensor([0.45 * 2.0**38]), torch.zeros(1, dtype=torch.int64), Params({}), 0, 0.0)
    total.add(wire, "test")
    total.add(wire, "test")
    part = WireSum()
    part.add(wire, "test")
    third = (lambda: total.merge(part.export())) if grouped else (lambda: total.add(wire, "test"))
    with pytest.raises(NumericsError, match=r"range of exact sums"):
        third()


def test_what_an_actor_exports_of_messages_is_their_sum_and_not_a_clients_own() -> None:
    """docs/design.md §3: the arithmetic of secure aggregation. Only the totals hold numbers."""
    g = torch.Generator().manual_seed(0)
    fold = UploadAccumulator()
    for client in range(2):
        wire = message(g)
        fold.add(client, 0.5, _upload(wire), "test")
    like, totals, count, hidden = fold.export().sums["x"]
    assert isinstance(like, Sums)
    assert (count, hidden) == (2, False)
    assert sum(t.size for t in totals) == 6 + 4 + 7 + 1 + 1
    assert like.total.numel() == like.count.numel() == like.point.numel() == 0
    assert like.n == 0
    assert like.x == 0.0


def _upload(wire: Summable) -> Any:
    from raffed.core.messages import Upload

    w = Params({"w": torch.ones(2)}).clone()
    return Upload(3, w, Params({}), {"x": wire})


def test_fixed_point_is_a_rounding_to_the_nearest_multiple() -> None:
    """0.3 with 4 bits: 4.8 → 5 → 5/16. Halves go to even, as IEEE does: 2.5/16 → 2/16."""
    fixed = to_fixed(torch.tensor([0.3, -0.3, 2.5 / 16]), 1.0, 4, "x")
    assert fixed.tolist() == [5, -5, 2]
    assert from_fixed(fixed, 4).tolist() == [5 / 16, -5 / 16, 2 / 16]
    assert BITS == 44
