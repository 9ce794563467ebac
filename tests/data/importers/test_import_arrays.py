"""Arrays from a person's own code: right numbers, or one line that names array, sample and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

from raffed.data.importers.arrays import import_arrays, import_torch
from raffed.data.importers.imported import Imported
from raffed.errors import UsageError

X = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2])
Given = Mapping[str, npt.ArrayLike]


def made(x: npt.ArrayLike = X, y: npt.ArrayLike = Y, **more: npt.ArrayLike) -> Imported:
    return import_arrays(x, y, name="mine", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ">f8", "?"])
def test_floats_of_any_width_and_yes_and_no_become_float32(kind: str) -> None:
    found = made(np.arange(24).reshape(6, 4).astype(kind))
    assert found.x.dtype == np.float32
    assert np.array_equal(found.x, np.arange(24).reshape(6, 4).astype(kind).astype("f4"))


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u2", "u4", "u8", ">i4"])
def test_integers_are_ids_of_int64(kind: str) -> None:
    found = made(np.arange(24).reshape(6, 4).astype(kind))
    assert found.x.dtype == np.int64
    assert found.x.tolist() == np.arange(24).reshape(6, 4).tolist()


def test_grey_images_in_uint8_stay_uint8_and_get_a_channel() -> None:
    images = np.arange(6 * 25, dtype=np.uint8).reshape(6, 5, 5)
    found = made(images)
    assert found.x.dtype == np.uint8
    assert np.array_equal(found.x, images[:, None])


@pytest.mark.parametrize("shape", [(6, 1), (6, 7, 3), (6, 2, 3, 4), (6, 1, 2, 3, 4, 5)])
def test_samples_may_have_any_shape(shape: tuple[int, ...]) -> None:
    assert made(np.zeros(shape)).x.shape == shape


def test_classes_are_the_labels_found_and_their_names() -> None:
    numbers = made(y=Y * 10 + 5)
    assert numbers.y.tolist() == Y.tolist()
    assert numbers.class_names == ("5", "15", "25")
    texts = made(y=np.array(["cat", "dog", "eel"])[Y])
    assert texts.y.tolist() == Y.tolist()
    assert texts.class_names == ("cat", "dog", "eel")
    assert made(y=Y == 1).class_names == ("0", "1")
    assert made(y=np.array(["a", "b", "c"], dtype=object)[Y]).class_names == ("a", "b", "c")


def test_given_class_names_are_places_for_numbers_and_entries_for_text() -> None:
    names = ["zebra", "ape", "cow"]
    assert made(class_names=names).y.tolist() == Y.tolist()
    assert made(y=np.array(names)[Y], class_names=names).y.tolist() == Y.tolist()


def test_test_labels_get_the_numbers_of_the_training_labels() -> None:
    found = made(y=Y * 10 + 5, x_test=X[:2], y_test=[25, 5])
    assert found.y_test.tolist() == [2, 0]


def test_clients_are_numbered_by_their_names_and_unknown_test_clients_are_minus_1() -> None:
    found = made(
        clients=["b", "a", "b", "a", "b", "a"], x_test=X[:3], y_test=[0, 1, 2], test_clients=["b", "z", "a"]
    )
    assert found.client_names == ("a", "b")
    assert found.clients is not None
    assert found.clients.tolist() == [1, 0, 1, 0, 1, 0]
    assert found.test_clients is not None
    assert found.test_clients.tolist() == [1, -1, 0]


def test_clients_with_numbers_are_ordered_by_size_and_not_by_alphabet() -> None:
    assert made(clients=[10, 9, 10, 9, 2, 2]).client_names == ("2", "9", "10")


REFUSED: dict[str, tuple[Given, str]] = {
    "a label too few": ({"y": Y[:5]}, "y has 5 labels for 6 samples"),
    "labels with a fraction": (
        {"y": Y.astype(float)},
        r"y is float64 \(6,\), but must be one integer or text",
    ),
    "labels as one-hot rows": ({"y": np.eye(3)[Y]}, r"y is float64 \(6, 3\).* one-hot, .*: y\.argmax\(1\)"),
    "scores of classes": ({"y": np.full((6, 3), 0.3)}, r"y\.argmax\(1\), and several labels per sample"),
    "whole numbers as floats": ({"y": Y.astype(float)}, r"give whole numbers: y\.astype\(int\)"),
    "a number with a fraction": ({"y": Y + 0.5}, r"row 0 has 0\.5, and raffed classifies"),
    "labels as bytes": ({"y": Y.astype("S1")}, r"y\.astype\(str\)"),
    "a missing label": ({"y": np.array(["a", None, "b", "a", "b", "a"], dtype=object)}, "no label in row 1"),
    "an empty label": ({"y": ["a", "b", " ", "a", "b", "a"]}, "empty label in row 2"),
    "labels that look alike": ({"y": ["a", "a ", "b", "a", "b", "a"]}, "labels 'a' and 'a ' look the same"),
    "labels of other characters": ({"y": ["\u00e4", "a\u0308", "b"] * 2}, "labels .* look the same"),
    "a test client with a blank": (
        {"clients": ["a", "b"] * 3, "x_test": X[:1], "y_test": [0], "test_clients": ["a "]},
        "test_clients: the clients 'a' and 'a ' look the same",
    ),
    "a test client of other characters": (
        {"clients": ["\u00e4", "b"] * 3, "x_test": X[:1], "y_test": [0], "test_clients": ["a\u0308"]},
        "test_clients: the clients .* look the same",
    ),
    "labels of several types": ({"y": np.array(["a", 1, "b", 1, "a", 1], dtype=object)}, "type int, str"),
    "one class": ({"y": [7] * 6}, "the one class '7'; a classification needs at least two"),
    "a label beyond the names": ({"class_names": ["a", "b"]}, "label 2 in row 2, but labels must be 0 to 1"),
    "a label below 0": ({"y": Y - 1, "class_names": ["a", "b", "c"]}, "label -1 in row 0"),
    "a class without samples": ({"class_names": ["a", "b", "c", "d"]}, "class 'd' has no training sample"),
    "two classes of one name": ({"class_names": ["a", "b", "a"]}, "class_names has 'a' twice"),
    "names without an order": ({"class_names": {"a", "b", "c"}}, "class_names is a set, but must be a list"),
    "one text for all names": ({"class_names": "abc"}, "class_names is a str, but must be a list"),
    "a text that is no class": ({"y": ["a", "b", "x"] * 2, "class_names": ["a", "b"]}, "'x' in row 2"),
    "a test label that is not trained": (
        {"x_test": X[:1], "y_test": [9]},
        "y_test has the label '9' in row 0",
    ),
    "NaN": (
        {"x": np.where(X == 5, np.nan, X)},
        r"1 values that are NaN or infinite, the first in sample 1 \(index \[1\]\)",
    ),
    "infinity": ({"x": np.where(X == 8, np.inf, X)}, "the first in sample 2"),
    "huge values": (
        {"x": np.where(X == 8, 1e30, X)},
        r"beyond ±1e\+09, the first in sample 2 .*subtract the mean",
    ),
    "values beyond float32": ({"x": np.where(X == 8, 1e300, X.astype(float))}, "the first in sample 2"),
    "negative ids": (
        {"x": X.astype(int) - 1},
        r"1 negative values, the first in sample 0 .*astype\('float32'\)",
    ),
    "ids beyond 2^31": ({"x": X.astype(int) + 2**31}, "number them from 0"),
    "objects": ({"x": X.astype(object)}, "x is object"),
    "text": ({"x": X.astype(str)}, r"x is <U\d+"),
    "complex numbers": ({"x": X.astype(complex)}, "x is complex128"),
    "dates": ({"x": np.zeros((6, 2), "datetime64[s]")}, "x is datetime64"),
    "lists of unequal lengths": ({"x": [[1], [1, 2]], "y": [0, 1]}, "cannot be turned into a NumPy array"),
    "arrays of unequal shapes": (
        {"x": np.array([np.zeros(2), np.zeros(3)], dtype=object), "y": [0, 1]},
        "perhaps of unequal lengths",
    ),
    "one number a sample": ({"x": X[:, 0]}, r"x\[:, None\]"),
    "no samples": ({"x": X[:0], "y": []}, "at least one sample"),
    "samples of no size": ({"x": X[:, :0]}, "at least one sample and one value"),
    "channels last": ({"x": np.zeros((6, 8, 8, 3), np.uint8)}, r"channels last, .*transpose\(0, 3, 1, 2\)"),
    "test samples of another shape": (
        {"x_test": X[:2, :3], "y_test": [0, 1]},
        r"shape \(3,\), the training part \(4,\)",
    ),
    "test samples of another type": ({"x_test": X[:2].astype(int), "y_test": [0, 1]}, "x_test becomes int64"),
    "test samples alone": ({"x_test": X[:2]}, "x_test is given without y_test"),
    "test labels alone": ({"y_test": [0]}, "y_test is given without x_test"),
    "masked values": (
        {"x": np.ma.masked_where(X == 5, X)},
        r"x has 1 masked values, the first in sample 1 \(index \[1\]\)",
    ),
    "a masked label": ({"y": np.ma.masked_where(np.arange(6) == 4, Y)}, "y has 1 masked .* in sample 4"),
    "NaN among labels in a list": ({"y": ["a", "b", float("nan")] * 2}, r"no label in row 2 \(nan\)"),
    "NaN among clients in a list": ({"clients": ["a", float("nan")] * 3}, r"no client in row 1 \(nan\)"),
    "a list of several types": ({"y": ["a", 1, "b", 1, "a", 1]}, "type int, str"),
    "a client too few": ({"clients": ["a"] * 5}, "clients has 5 clients for 6 samples"),
    "a client without a name": ({"clients": ["a", "", "a", "b", "b", "b"]}, "an empty client in row 1"),
    "clients that look alike": ({"clients": ["a", "a ", "a", "b", "b", "b"]}, "'a' and 'a ' look the same"),
    "a missing client": ({"clients": np.array(["a", None] * 3, dtype=object)}, "no client in row 1"),
    "clients with a fraction": ({"clients": X[:, 0]}, "clients is float32"),
    "test clients alone": (
        {"x_test": X[:2], "y_test": [0, 1], "test_clients": [0, 1]},
        "give both or neither",
    ),
    "a test share above 0.9": ({"test": 0.95}, "mine: test = 0.95"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_in_one_line_that_names_it(case: str) -> None:
    change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        made(**change)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine: ")


def test_a_torch_data_set_is_read_item_by_item() -> None:
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    found = import_torch(data, test_data=data, clients=[0, 0, 0, 1, 1, 1])
    assert np.array_equal(found.x, X)
    assert found.y_test.tolist() == Y.tolist()
    assert found.name == "TensorDataset"


def test_data_frames_have_their_columns_in_one_order() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert made(frame, x_test=frame[:2], y_test=[0, 1]).x_test.tolist() == X[:2].tolist()
    assert made(frame, x_test=X[:2], y_test=[0, 1]).x_test.tolist() == X[:2].tolist()
    with pytest.raises(UsageError, match=r"column 1 of x_test is 'c', and that of x is 'b'.*x_test\[x\.col"):
        made(frame, x_test=frame[list("acbd")], y_test=Y)
    with pytest.raises(UsageError, match="column 3 of x_test is '', and that of x is 'd'"):
        made(frame, x_test=frame[list("abc")], y_test=Y)


def test_rows_that_carry_names_are_never_joined_by_their_places() -> None:
    frame = pd.DataFrame(X, index=list("abcdef"))
    labels = pd.Series(Y, index=list("fedcba"))
    with pytest.raises(UsageError, match=r"rows of y and x have other names .*y\.loc\[x\.index\]"):
        made(frame, labels)
    assert made(frame, labels.loc[frame.index]).y.tolist() == Y[::-1].tolist()
    assert made(frame, labels.to_numpy()).y.tolist() == Y.tolist()


class Folder(list[tuple[torch.Tensor, int]]):
    """A data set like torchvision's ImageFolder, which numbers the classes that it finds."""

    def __init__(self, labels: Sequence[int], classes: Sequence[str]) -> None:
        super().__init__((torch.full((2,), float(label)), label) for label in labels)
        self.classes = list(classes)


@pytest.mark.parametrize("numbers", [[0, 1, 2], [0, 2, 2]], ids=["all classes", "a class without samples"])
def test_the_classes_of_a_torch_test_part_are_known_by_their_names(numbers: list[int]) -> None:
    """A test folder that lacks a class numbers the later ones from an earlier number."""
    data = Folder(numbers, ["ant", "bee", "cat"])
    found = import_torch(data, test_data=Folder([1, 0, 1], ["ant", "cat"]))
    cat = int(found.y[2])
    assert found.y_test.tolist() == [cat, 0, cat]
    with pytest.raises(UsageError, match=r"Folder \(test\): its class 'dog' is not a class of the training"):
        import_torch(data, test_data=Folder([0, 1], ["ant", "dog"]))


def test_a_torch_data_set_of_images_with_a_palette_gets_its_colours() -> None:
    from PIL import Image

    image = Image.new("P", (2, 3))
    image.putpalette([200, 100, 50])
    found = import_torch([(image, 0), (image, 1)])
    assert found.x[1, :, 0, 0].tolist() == [200, 100, 50]
    assert found.x.shape == (2, 3, 3, 2)


def test_a_torch_data_set_of_pil_images_gets_its_channels_first() -> None:
    from PIL import Image

    image = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    found = import_torch([(Image.fromarray(image), 0), (Image.fromarray(image), 1)])
    assert np.array_equal(found.x[1], image.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([torch.zeros(3)], "item 0 is a Tensor, but must be"),
        ([(torch.zeros(3), 0), (torch.zeros(4), 1)], r"item 1 has shape \(4,\), item 0 \(3,\)"),
        ([], "has no items"),
    ],
)
def test_items_that_are_not_a_sample_and_a_label_are_refused_by_number(
    items: list[Sequence[npt.ArrayLike]], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        import_torch(items)
