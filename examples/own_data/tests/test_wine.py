"""The contract of every data set, and what must hold of this one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from winelab.data import wine


@pytest.mark.raffed("winelab.data:wine")
def test_the_contract_holds(raffed_check: Callable[[], None]) -> None:
    raffed_check()


def test_every_wine_is_there_once() -> None:
    found = wine()
    assert len(found.x) + len(found.x_test) == 178
    assert found.num_classes == 3


def test_each_site_mostly_has_one_kind() -> None:
    found = wine()
    for site in range(3):
        counts = np.bincount(found.y[found.clients == site], minlength=3)
        assert counts.max() > counts.sum() / 2
