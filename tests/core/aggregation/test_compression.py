"""Compression of uploads: which numbers are sent, how they are rounded, and how many bytes that takes."""

from __future__ import annotations

import math

import pytest
import torch

from raffed.config.aggregation import CompressionRule, Quantize, TopK
from raffed.core.ingredients.base import compressed
from raffed.core.params import Params
from raffed.core.seeds import generator
from tests.tiny import body_point as point


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
