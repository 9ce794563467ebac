"""FedDisco (Ye et al. 2023)."""

from __future__ import annotations

import math

import pytest
import torch

from raffed.core.server import Mean
from raffed.methods.fedavg import fedavg
from raffed.methods.feddisco import DiscrepancyWeights, Measure, discrepancy, feddisco
from tests.tiny import EVERYBODY, Tiny, network

SIZES = [100, 200, 700]
COUNTS = [torch.tensor(row) for row in ([50, 50, 0, 0], [50, 50, 50, 50], [700, 0, 0, 0])]


def weights(a: float, b: float, measure: Measure) -> list[float]:
    return Mean(reweighting=DiscrepancyWeights(a, b, measure)).weights(SIZES, lambda: COUNTS)


def test_distances_to_the_uniform_distribution_of_four_classes() -> None:
    """(½, ½, 0, 0), uniform and (1, 0, 0, 0): √(1/2 − 1/4), log 2, 1 − 1/√2; 0; √(1 − 1/4), log 4, ½."""
    expected: dict[Measure, list[float]] = {
        "l2": [0.5, 0.0, 0.8660254],
        "kl": [math.log(2), 0.0, math.log(4)],
        "cosine": [1 - 1 / math.sqrt(2), 0.0, 0.5],
    }
    for measure, values in expected.items():
        assert [float(discrepancy(c, measure)) for c in COUNTS] == pytest.approx(values, abs=1e-7)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_a_client_of_one_class_is_as_far_away_as_it_can_be(classes: int) -> None:
    counts = 7 * torch.eye(classes, dtype=torch.int64)[1]
    assert float(discrepancy(counts, "l2")) == pytest.approx(math.sqrt(1 - 1 / classes))
    assert float(discrepancy(counts, "kl")) == pytest.approx(math.log(classes))


def test_three_clients_have_the_weights_worked_out_by_hand() -> None:
    assert weights(0.5, 0.1, "l2") == pytest.approx([0.0, 0.4497837, 0.5502163], abs=1e-7)
    assert weights(0.5, 0.1, "kl") == pytest.approx([0.0416667, 0.375, 0.5833333], abs=1e-7)


@pytest.mark.parametrize("measure", ["kl", "l2", "cosine"])
def test_weights_add_up_to_1_and_none_is_negative(measure: Measure) -> None:
    for a, b in ((0.5, 0.1), (3.0, 0.2), (0.1, 0.0)):
        made = weights(a, b, measure)
        assert sum(made) == pytest.approx(1.0, abs=1e-12)
        assert min(made) >= 0.0


def test_where_no_weight_is_above_0_the_usual_ones_are_taken() -> None:
    rule = DiscrepancyWeights(10.0, 0.0, "l2")
    assert rule.weights([0.25, 0.75], [torch.tensor([0.5]), torch.tensor([0.8])]) == [0.25, 0.75]


def test_equal_discrepancies_that_b_offsets_leave_the_usual_weights() -> None:
    """b = a·d: ñ_k − a·d + b = ñ_k. By "kl" each of two equal d_k is a half."""
    same = [torch.tensor([0.5])] * 2
    assert DiscrepancyWeights(0.5, 0.25, "l2").weights([0.25, 0.75], same) == pytest.approx([0.25, 0.75])
    assert DiscrepancyWeights(0.5, 0.25, "kl").weights([0.25, 0.75], same) == pytest.approx([0.25, 0.75])


def test_uniform_clients_have_no_share_of_a_discrepancy_that_is_not_there() -> None:
    nothing = [torch.tensor([0.0])] * 2
    assert DiscrepancyWeights(0.5, 0.0, "kl").weights([0.25, 0.75], nothing) == [0.25, 0.75]


def test_statistics_of_batchnorm_have_the_same_weights_as_parameters() -> None:
    """Client 2 holds one class of three and client 3 all of them, so they weigh less and more."""
    tiny = Tiny(feddisco(), net=network(norm=True))
    sizes, counts = [one.n for one in tiny.data], [one.class_counts for one in tiny.data]
    p = tiny.method.mean.weights(sizes, lambda: counts)
    usual = Mean().weights(sizes)
    assert p[2] < usual[2] - 0.05
    assert p[3] > usual[3] + 0.05
    done = tiny.step(EVERYBODY)
    for part in ("w", "b"):
        mean = sum(p[c] * getattr(done[c].upload, part).flat.double() for c in EVERYBODY)
        torch.testing.assert_close(getattr(tiny.server, part).flat.double(), mean, rtol=0, atol=1e-6)


def test_a_client_sends_one_number_more_than_in_fedavg() -> None:
    one, two = (Tiny(m, net=network(norm=True)).step(EVERYBODY)[1].upload for m in (feddisco(), fedavg()))
    assert one.nbytes() == two.nbytes() + 4
    assert one.report is not None
    assert one.report.tolist() == pytest.approx([math.log(3 / 2)])  # two of three classes, equally often
