"""Pictures have names as they are, whatever the user's own settings of matplotlib say."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from raffed.analysis.figures.theme import LIGHT, style

from raffed.data.partition import make_partition
from raffed.data.picture import draw_partition
from raffed.data.splits import parse_split

SETTINGS = {"font.size": 30, "savefig.transparent": True, "axes.grid": True, "savefig.bbox": "tight"}


def picture(path: Path) -> bytes:
    labels = np.arange(200, dtype=np.int64) % 2
    partition = make_partition(parse_split("iid:4"), labels, 2, None, seed=0)
    draw_partition(partition, labels, path, class_names=["$25K_$50K", "$\\frac{"])
    return path.read_bytes()


def test_a_partition_is_drawn_with_dollars_in_names_and_with_settings_of_its_own(tmp_path: Path) -> None:
    usual = picture(tmp_path / "usual.png")
    with mpl.rc_context(SETTINGS):
        assert picture(tmp_path / "other.png") == usual


@pytest.mark.parametrize("name", SETTINGS)
def test_figures_of_reports_have_the_default_settings(name: str) -> None:
    with style(LIGHT):
        wanted = mpl.rcParams[name]
    with mpl.rc_context(SETTINGS), style(LIGHT):
        assert mpl.rcParams[name] == wanted
