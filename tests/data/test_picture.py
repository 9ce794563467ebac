"""The picture of a partition: a missing class looks different from a single sample, and sums stand in the
margins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.picture import _canvas, _draw_counts, _round_numbers, draw_partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError


@pytest.mark.parametrize("text", ["p5c2", "incomplete:100", "iid:1"])
def test_a_picture_is_written_for_few_and_for_many_clients(text: str, tmp_path: Path) -> None:
    labels = np.arange(5000, dtype=np.int64) % 10
    p = make_partition(parse_split(text), labels, 10, None, seed=0)
    draw_partition(p, labels, tmp_path / "p.png", class_names=list("abcdefghij"))
    height, width = imread(tmp_path / "p.png").shape[:2]
    assert 500 < height < 2000
    assert 500 < width < 3000


def test_a_missing_class_is_white_and_one_sample_is_clearly_not() -> None:
    counts = np.array([[0, 1, 1000], [5, 0, 7]])
    figure, heat, _, _ = _canvas(*counts.shape)
    _draw_counts(figure, heat, counts)
    image = heat.images[0]
    colours = image.to_rgba(image.get_array())
    assert heat.get_facecolor() == (1.0, 1.0, 1.0, 1.0)
    np.testing.assert_array_equal(
        colours[..., 3] == 0, counts == 0, "missing cells show the white background"
    )
    assert np.abs(colours[0, 1, :3] - 1).max() > 0.25


def test_every_cell_of_a_small_picture_carries_its_number() -> None:
    counts = np.array([[0, 12], [345, 6]])
    figure, heat, _, _ = _canvas(*counts.shape)
    _draw_counts(figure, heat, counts)
    assert [text.get_text() for text in heat.texts] == ["–", "12", "345", "6"]


@pytest.mark.parametrize(
    ("least", "most", "ticks"),
    [(1, 30, [1, 2, 5, 10, 20]), (36, 147, [50, 100]), (3, 4, [3, 4]), (100, 1000, [100, 200, 500, 1000])],
)
def test_the_scale_has_round_numbers(least: int, most: int, ticks: list[int]) -> None:
    assert _round_numbers(least, most) == ticks


def test_a_wrong_number_of_class_names_is_refused(tmp_path: Path) -> None:
    p = Partition((np.array([0, 1]),), (np.zeros(0, np.int64),), 2)
    with pytest.raises(UsageError, match="3 class names for 2 classes"):
        draw_partition(p, np.array([0, 1]), tmp_path / "p.png", ["a", "b", "c"])
