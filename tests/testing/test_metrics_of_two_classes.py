"""A metric that is defined for two classes alone is checked with two."""

from __future__ import annotations

from torch import Tensor

import raffed
from raffed.testing import check_metric


@raffed.metric(unit="fraction")
def area_under_roc(scores: Tensor, labels: Tensor) -> float:
    """The share of pairs of a positive and a negative sample in which the positive one has more."""
    if scores.shape[1] != 2:
        raise ValueError("two classes only")
    margin = scores[:, 1] - scores[:, 0]
    pairs = margin[labels == 1][:, None] > margin[labels == 0][None, :]
    return pairs.double().mean().item()


def test_it_holds_and_a_note_says_with_how_many_classes() -> None:
    found = check_metric(area_under_roc)
    found.raise_if_failed()
    assert found.notes == ("checked with two classes, because it raises an error for five",)


@raffed.metric
def never(scores: Tensor, labels: Tensor) -> float:
    raise ValueError("it takes nothing")


def test_a_metric_that_takes_neither_two_nor_five_classes_fails_with_its_own_error() -> None:
    found = check_metric(never)
    assert {one.name: one.why for one in found.failed}["one-number"].endswith("ValueError: it takes nothing")
