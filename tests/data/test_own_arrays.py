"""A data set made from a user's own arrays: whatever the type or the layout, the right numbers or a
refusal in one line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from raffed.data.dataset import Dataset
from raffed.data.datasets import load_dataset
from raffed.errors import UsageError

X = np.arange(6 * 1 * 8 * 5, dtype=np.uint8).reshape(6, 1, 8, 5)
Y = np.array([0, 1, 2, 0, 1, 2])


def made(x: Any = X, y: Any = Y, **more: Any) -> Dataset:
    return Dataset(x, y, **{"x_test": X[:2], "y_test": Y[:2], "name": "mine", "num_classes": 3, **more})


@pytest.mark.parametrize(
    "kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4", "intp"]
)
def test_labels_of_any_type_of_integers_are_the_same_labels(kind: str) -> None:
    found = made(y=Y.astype(kind)).y
    assert found.dtype == np.int64
    assert found.tolist() == Y.tolist()


def test_yes_and_no_are_the_labels_1_and_0() -> None:
    assert made(y=Y == 1).y.tolist() == [0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "y", [Y.tolist(), tuple(Y.tolist()), torch.from_numpy(Y)], ids=["list", "tuple", "tensor"]
)
def test_labels_that_are_no_array_become_one(y: Any) -> None:
    assert made(y=y).y.tolist() == Y.tolist()


def test_images_without_an_axis_for_their_channel_get_one() -> None:
    found = made(x=X[:, 0], x_test=X[:2, 0])
    assert np.array_equal(found.x, X)
    assert found.x_test.shape == (2, 1, 8, 5)


def test_images_that_do_not_lie_in_one_piece_are_the_same_images() -> None:
    turned = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(made(x=turned).x, X)
    assert np.array_equal(made(x=np.repeat(X, 2, 0)[::2]).x, X)


@pytest.mark.parametrize("absent", [{"x_test": X[:0], "y_test": []}, {"x_test": None, "y_test": None}])
def test_a_data_set_without_test_samples_is_one(absent: dict[str, Any]) -> None:
    found = made(**absent)
    assert found.y_test.dtype == np.int64
    assert found.x_test.shape == (0, 1, 8, 5)


TABLE = np.linspace(-1, 1, 18).reshape(6, 3)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (TABLE, np.float32),
        (TABLE.astype(np.float16), np.float32),
        (TABLE > 0, np.float32),
        (np.arange(24).reshape(6, 4).astype(np.int16), np.int64),
        (np.arange(24, dtype=np.uint32).reshape(6, 2, 2), np.int64),
        (X, np.uint8),
        (np.zeros((6, 2, 3, 4, 5)), np.float32),
    ],
)
def test_inputs_of_any_shape_are_stored_as_pixels_floats_or_numbers_of_words(
    given: np.ndarray, stored: type
) -> None:
    found = made(x=given, x_test=given[:2]).x
    assert found.dtype == stored
    np.testing.assert_array_equal(found, given.astype(stored))


def test_the_number_of_classes_is_that_of_the_names_or_else_of_the_labels() -> None:
    assert Dataset(TABLE, Y).num_classes == 3
    assert Dataset(TABLE, Y, TABLE, Y + 2).num_classes == 5
    assert Dataset(TABLE, Y, class_names=tuple("abcd")).num_classes == 4
    with pytest.raises(UsageError, match="the data set: y goes from 0 to 2, but must stay within 0 to 1"):
        Dataset(TABLE, Y, class_names=("a", "b"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("x_train", "x"), ("y_train", "y"), ("groups", "clients"), ("test_groups", "test_clients")],
)
def test_former_names_of_the_arrays_warn_and_give_the_same_array(old: str, new: str) -> None:
    found = made(clients=Y, test_clients=[-1, 0])
    with pytest.warns(DeprecationWarning, match=f"Dataset.{old} is called {new} now"):
        assert getattr(found, old) is getattr(found, new)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "labels as floats": ({"y": Y.astype(float)}, r"y is float64 \(6,\), but must be one integer per sample"),
    "labels in a column": ({"y": Y[:, None]}, r"y is int64 \(6, 1\), but must be one integer per sample"),
    "labels as text": ({"y": Y.astype(str)}, "must be one integer per sample"),
    "labels as objects": ({"y": Y.astype(object)}, "y is object"),
    "labels in lists of unequal lengths": ({"y": [[0], [1, 2]]}, "is not a NumPy array"),
    "a label too many": ({"y": [*Y.tolist(), 0]}, "y has 7 entries, but there are 6 samples"),
    "no labels": ({"y": []}, "y has 0 entries, but there are 6 samples"),
    "labels from 1": ({"y": Y + 1}, "y goes from 1 to 3, but must stay within 0 to 2"),
    "labels below 0": ({"y": Y - 1}, "y goes from -1 to 1, but must stay within 0 to 2"),
    "a label beyond int64": (
        {"y": np.array([0, 1, 2, 0, 1, 2**64 - 1], np.uint64)},
        "goes from 0 to 18446744073709551615",
    ),
    "a test label out of range": ({"y_test": [0, 3]}, "y_test goes from 0 to 3"),
    "test labels for other samples": ({"y_test": [0]}, "y_test has 1 entries, but there are 2 samples"),
    "test samples without labels": ({"y_test": None}, "x_test and y_test belong together"),
    "floats with NaN": (
        {"x": np.where(X == 41, np.nan, X)},
        "x has 1 values that are not finite in float32, the first in sample 1",
    ),
    "floats beyond float32": ({"x": X * 1e300}, "not finite in float32"),
    "inputs of objects": ({"x": X.astype(object)}, "x is object"),
    "inputs of text": ({"x": X.astype(str)}, "must be uint8 for pixels, floats, or integers"),
    "channels last": ({"x": X.transpose(0, 2, 3, 1)}, r"shape \(6, 8, 5, 1\), with the channels last"),
    "one number a sample": ({"x": Y.astype(float)}, r"shape \(6,\), but must have the shape \(N, \.\.\.\)"),
    "one image": ({"x": X[0, 0]}, "y has 6 entries, but there are 8 samples"),
    "images of no size": ({"x": X[:, :, :0]}, "with N > 0 samples of one shape"),
    "no training sample": ({"x": X[:0], "y": []}, "x holds no training sample"),
    "test images of another size": (
        {"x_test": X[:2, :, :4]},
        r"inputs of x_test are uint8 \(1, 4, 5\), but those of x are uint8 \(1, 8, 5\)",
    ),
    "test images of another type": ({"x_test": X[:2] / 255}, "inputs of x_test are float32"),
    "pixels above the one that means 1": ({"max_value": 16}, "goes up to 239, but max_value"),
    "clients of other samples": ({"clients": [0, 1]}, "clients has 2 entries, but there are 6 samples"),
    "clients below 0": ({"clients": Y - 1}, "clients goes from -1"),
    "test clients below none": (
        {"test_clients": [-2, 0]},
        "test_clients goes from -2, but must not be below -1",
    ),
    "fewer than no classes": ({"num_classes": -1}, "num_classes = -1"),
    "too few names": ({"class_names": ("a", "b")}, "2 class_names, but num_classes = 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_in_one_line_that_names_the_array(case: str) -> None:
    change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        made(**change)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine: ")


def test_a_replacement_is_checked_as_well() -> None:
    with pytest.raises(UsageError, match="y has 5 entries, but there are 6 samples"):
        replace(made(), y=Y[:5])


def test_the_arrays_of_a_data_set_that_is_right_are_not_copied() -> None:
    digits = load_dataset("digits")
    again = replace(digits)
    assert again.x is digits.x
    assert again.y is digits.y


def test_masked_values_are_refused_and_a_mask_without_any_is_not() -> None:
    with pytest.raises(UsageError, match=r"mine: x has 1 masked values, the first in sample 1"):
        made(x=np.ma.masked_equal(TABLE, TABLE[1, 0]), x_test=TABLE[:2])
    assert np.array_equal(made(x=np.ma.masked_equal(X, 255)).x, X)
