"""A data set made from a user's own arrays: whatever the type or the layout, the right numbers or a
refusal in one line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from raffed.data.datasets import Dataset, load_dataset
from raffed.errors import UsageError

X = np.arange(6 * 1 * 8 * 5, dtype=np.uint8).reshape(6, 1, 8, 5)
Y = np.array([0, 1, 2, 0, 1, 2])


def made(x: Any = X, y: Any = Y, **more: Any) -> Dataset:
    return Dataset("mine", x, y, **{"x_test": X[:2], "y_test": Y[:2], "num_classes": 3, **more})


@pytest.mark.parametrize(
    "kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4", "intp"]
)
def test_labels_of_any_type_of_integers_are_the_same_labels(kind: str) -> None:
    found = made(y=Y.astype(kind)).y_train
    assert found.dtype == np.int64
    assert found.tolist() == Y.tolist()


def test_yes_and_no_are_the_labels_1_and_0() -> None:
    assert made(y=Y == 1).y_train.tolist() == [0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "y", [Y.tolist(), tuple(Y.tolist()), torch.from_numpy(Y)], ids=["list", "tuple", "tensor"]
)
def test_labels_that_are_no_array_become_one(y: Any) -> None:
    assert made(y=y).y_train.tolist() == Y.tolist()


def test_images_without_an_axis_for_their_channel_get_one() -> None:
    found = made(x=X[:, 0], x_test=X[:2, 0])
    assert np.array_equal(found.x_train, X)
    assert found.x_test.shape == (2, 1, 8, 5)


def test_images_that_do_not_lie_in_one_piece_are_the_same_images() -> None:
    turned = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(made(x=turned).x_train, X)
    assert np.array_equal(made(x=np.repeat(X, 2, 0)[::2]).x_train, X)


def test_a_data_set_without_test_images_is_one() -> None:
    assert made(x_test=X[:0], y_test=[]).y_test.dtype == np.int64


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "labels as floats": ({"y": Y.astype(float)}, r"y_train is float64 \(6,\), wanted one integer an image"),
    "labels in a column": ({"y": Y[:, None]}, r"y_train is int64 \(6, 1\), wanted one integer an image"),
    "labels as text": ({"y": Y.astype(str)}, "wanted one integer an image"),
    "labels as objects": ({"y": Y.astype(object)}, "y_train is object"),
    "labels in lists of unequal lengths": ({"y": [[0], [1, 2]]}, "is no array of NumPy's"),
    "a label too many": ({"y": [*Y.tolist(), 0]}, "y_train has 7 entries for 6 images"),
    "no labels": ({"y": []}, "y_train has 0 entries for 6 images"),
    "labels from 1": ({"y": Y + 1}, "y_train goes from 1 to 3, wanted 0 to 2"),
    "labels below 0": ({"y": Y - 1}, "y_train goes from -1 to 1, wanted 0 to 2"),
    "a label beyond int64": (
        {"y": np.array([0, 1, 2, 0, 1, 2**64 - 1], np.uint64)},
        "goes from 0 to 18446744073709551615",
    ),
    "a test label out of range": ({"y_test": [0, 3]}, "y_test goes from 0 to 3"),
    "test labels for other images": ({"y_test": [0]}, "y_test has 1 entries for 2 images"),
    "float images": ({"x": X / 255}, r"x_train is float64 .* \(images \* 255\)\.round"),
    "float images with NaN": ({"x": np.full(X.shape, np.nan, np.float32)}, "x_train is float32"),
    "images of int64": ({"x": X.astype(int)}, "x_train is int64 .*astype"),
    "images of objects": ({"x": X.astype(object)}, "x_train is object"),
    "channels last": ({"x": X.transpose(0, 2, 3, 1)}, r"shape \(6, 8, 5, 1\), the channels last"),
    "one image": ({"x": X[0, 0]}, r"shape \(8, 5\), wanted \(N, channels, H, W\)"),
    "images of no size": ({"x": X[:, :, :0]}, "wanted"),
    "five axes": ({"x": X[None]}, "wanted"),
    "no training image": ({"x": X[:0], "y": []}, "there is no training image"),
    "test images of another size": (
        {"x_test": X[:2, :, :4]},
        r"x_test's images are \(1, 4, 5\), x_train's \(1, 8, 5\)",
    ),
    "pixels above the one that means 1": ({"max_value": 16}, "goes up to 239, and max_value"),
    "groups for other images": ({"groups": [0, 1]}, "groups has 2 entries for 6 images"),
    "groups below 0": ({"groups": Y - 1}, "groups goes from -1"),
    "no classes": ({"num_classes": 0}, "num_classes = 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_in_one_line_that_names_the_array(case: str) -> None:
    change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        made(**change)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine: ")


def test_a_replacement_is_checked_as_well() -> None:
    with pytest.raises(UsageError, match="y_train has 5 entries for 6 images"):
        replace(made(), y_train=Y[:5])


def test_the_arrays_of_a_data_set_that_is_right_are_not_copied() -> None:
    digits = load_dataset("digits")
    again = replace(digits)
    assert again.x_train is digits.x_train
    assert again.y_train is digits.y_train
