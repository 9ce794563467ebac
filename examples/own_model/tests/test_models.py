"""The contract of every network, and what must hold of this one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from netlab.models import SmallCNN


@pytest.mark.raffed("netlab.models:SmallCNN")
def test_the_contract_holds(raffed_check: Callable[[], None]) -> None:
    raffed_check()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_images_of_any_size_get_a_score_for_each_class(shape: tuple[int, ...]) -> None:
    assert SmallCNN(shape, 10)(torch.zeros(4, *shape)).shape == (4, 10)
