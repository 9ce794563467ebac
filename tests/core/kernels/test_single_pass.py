"""One pass instead of several: the bits of torch's operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raffed.core.aggregation.exact_sums import BITS, REACH, PointSum
from raffed.core.kernels import single_pass
from raffed.core.kernels.onednn_linear import WORTH, gradients
from raffed.core.kernels.single_pass import built, round_and_add, transposed
from raffed.core.params import Params

needs_kernel = pytest.mark.skipif(not built, reason="there was no compiler, or the processor has no AVX2")


def by_torch(into: Tensor, values: Tensor, scale: float) -> Tensor:
    return into + (values.double() * scale).round()


@needs_kernel
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1000, 1003])
def test_numbers_are_rounded_and_added_as_torch_does_it(count: int) -> None:
    g = torch.Generator().manual_seed(count)
    values = torch.randn(count, generator=g)
    into = torch.randint(-(2**50), 2**50, (count,), generator=g).double()
    expected = by_torch(into, values, 0.3 * 2.0**BITS)
    assert round_and_add(into, values, 0.3 * 2.0**BITS)
    assert torch.equal(into, expected)


@needs_kernel
def test_a_half_becomes_the_even_number() -> None:
    values = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 0.50000006, 3.5])
    into = torch.zeros(9, dtype=torch.float64)
    assert round_and_add(into, values, 1.0)
    assert into.tolist() == [0, 2, 2, 0, -2, -2, 0, 1, 4]


@needs_kernel
def test_the_largest_numbers_that_are_gathered_stay_whole() -> None:
    values = torch.tensor([REACH, -REACH, REACH / 2 + 2.0**-16, 3.0e-39, 1.0e-45])
    into = torch.zeros(5, dtype=torch.float64)
    expected = by_torch(into, values, 2.0**BITS)
    assert round_and_add(into, values, 2.0**BITS)
    assert torch.equal(into, expected)
    assert into[0] == 2.0**52


@pytest.mark.parametrize(
    ("into", "values"),
    [
        (torch.zeros(4, dtype=torch.float64), torch.ones(8)[::2]),
        (torch.zeros(8, dtype=torch.float64)[::2], torch.ones(4)),
        (torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)),
        (torch.zeros(4), torch.ones(4)),
    ],
    ids=["strided values", "strided sum", "float64 values", "float32 sum"],
)
def test_what_the_kernel_cannot_read_is_left_to_torch(into: Tensor, values: Tensor) -> None:
    assert not round_and_add(into, values, 2.0)
    assert not into.any()


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 13, 24, 64])
@pytest.mark.parametrize("columns", [0, 1, 8, 33, 512])
def test_a_transpose_has_the_numbers_of_the_view_in_one_piece(rows: int, columns: int) -> None:
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    found = transposed(x)
    assert torch.equal(found, x.mT)
    assert found.is_contiguous() or not built
    assert torch.equal(transposed(x.mT), x)  # not in one piece


def test_a_sum_of_uploads_has_the_same_bits_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(5)
    points = [Params({"w": torch.randn(70_001, generator=g) * 10**power}) for power in (-6, -2, 0, 1)]
    totals = []
    for kernel in (built, False):
        monkeypatch.setattr(single_pass, "built", kernel)
        total = PointSum()
        for point, weight in zip(points, (0.1, 0.2, 0.3, 0.4), strict=True):
            total.add(point, weight, "a client")
        totals.append(total.value(points[0]).flat)
    assert torch.equal(*totals)


def test_gradients_of_a_large_layer_have_the_same_bits_without_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = torch.Generator().manual_seed(6)
    g, x, w = (torch.randn(*shape, generator=made) for shape in ((61, 200), (61, 300), (200, 300)))
    assert len(x) * w.numel() >= WORTH
    found = []
    for kernel in (built, False):
        monkeypatch.setattr(single_pass, "built", kernel)
        found.append(gradients(g, x, w, (True, True, True), onednn=True))
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)
