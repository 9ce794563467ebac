"""Arrays of a person's own code, lists of ids, and what is typed for files: right numbers, or one line that
names the fault.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

from raffed.data.dataset import Dataset
from raffed.data.importers.arrays import import_arrays, import_torch
from raffed.data.importers.imported import Imported, drawn_test_part
from raffed.data.importers.reference import guessed, import_hf, import_reference, parse_reference
from raffed.errors import UsageError

X = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2])
Given = Mapping[str, npt.ArrayLike]


def made(x: npt.ArrayLike = X, y: npt.ArrayLike = Y, **more: npt.ArrayLike) -> Imported:
    return import_arrays(x, y, name="mine", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "stored"), [("f2", "f4"), ("?", "f4"), ("i1", "i8"), (">i4", "i8")])
def test_floats_of_any_width_and_yes_and_no_become_float32_and_integers_ids(kind: str, stored: str) -> None:
    given = np.arange(24).reshape(6, 1, 4).astype(kind)
    found = made(given).x
    assert (found.dtype, found.shape) == (np.dtype(stored), (6, 1, 4))
    assert np.array_equal(found, given.astype(stored))
    images = np.arange(6 * 25, dtype=np.uint8).reshape(6, 5, 5)
    assert np.array_equal(made(images).x, images[:, None]), "grey images get a channel"
    assert made(images).x.dtype == np.uint8


@pytest.mark.parametrize(
    ("y", "given", "names"),
    [
        (Y * 10 + 5, None, ("5", "15", "25")),
        (np.array(["cat", "dog", "eel"])[Y], None, ("cat", "dog", "eel")),
        (np.array(["c 1", "c 2", "c 10"])[Y], None, ("c 1", "c 2", "c 10")),
        (Y, ["zebra", "ape", "cow"], ("zebra", "ape", "cow")),
        (np.array(["zebra", "ape", "cow"])[Y], ["zebra", "ape", "cow"], ("zebra", "ape", "cow")),
    ],
)
def test_classes_are_the_labels_found_or_the_names_given(
    y: npt.ArrayLike, given: list[str] | None, names: tuple[str, ...]
) -> None:
    more = {} if given is None else {"class_names": given}
    found = made(y=y, x_test=X[:2], y_test=np.asarray(y)[[2, 0]], **more)
    assert found.class_names == names
    assert found.y.tolist() == Y.tolist()
    assert found.y_test.tolist() == [2, 0]
    assert made(y=Y == 1).class_names == ("0", "1")


def test_clients_are_numbered_by_their_names_and_unknown_test_clients_are_minus_1() -> None:
    tests = {"x_test": X[:3], "y_test": [0, 1, 2], "test_clients": ["b", "z", "a"]}
    found = made(clients=["b", "a", "b", "a", "b", "a"], **tests)
    assert found.client_names == ("a", "b")
    assert found.clients.tolist() == [1, 0, 1, 0, 1, 0]
    assert found.test_clients.tolist() == [1, -1, 0]
    assert made(clients=[10, 9, 10, 9, 2, 2]).client_names == ("2", "9", "10"), "numbers by their size"


ONE_TEST: Given = {"x_test": X[:1], "y_test": [0]}
REFUSED: dict[str, tuple[Given, str]] = {
    "a label too few": ({"y": Y[:5]}, "y has 5 labels for 6 samples"),
    "whole numbers as floats": ({"y": Y.astype(float)}, r"y is float64 \(6,\).*: y\.astype\(int\)"),
    "huge values": (
        {"x": np.where(X == 8, 1e30, X)},
        r"beyond ±1e\+09, the first in sample 2 .*subtract the mean",
    ),
    "ids beyond 2^31": ({"x": X.astype(int) + 2**31}, "number them from 0"),
    "labels as one-hot rows": ({"y": np.eye(3)[Y]}, r"y is float64 \(6, 3\).* one-hot .*: y\.argmax\(1\)"),
    "a missing label": ({"y": np.array(["a", None, "b"] * 2, dtype=object)}, "no label in row 1"),
    "an empty label": ({"y": ["a", "b", " ", "a", "b", "a"]}, "empty label in row 2"),
    "labels that look alike": ({"y": ["a", "a ", "b"] * 2}, "labels 'a' and 'a ' look the same"),
    "labels of several types": ({"y": ["a", 1, "b", 1, "a", 1]}, "type int, str"),
    "one class": ({"y": [7] * 6}, "the one class '7'; a classification needs at least two"),
    "a label beyond the names": ({"class_names": ["a", "b"]}, "label 2 in row 2, but labels must be 0 to 1"),
    "a class without samples": ({"class_names": ["a", "b", "c", "d"]}, "class 'd' has no training sample"),
    "a text that is no class": ({"y": ["a", "b", "x"] * 2, "class_names": ["a", "b"]}, "'x' in row 2"),
    "a test label that is not trained": ({**ONE_TEST, "y_test": [9]}, "y_test has the label '9' in row 0"),
    "NaN": (
        {"x": np.where(X == 5, np.nan, X)},
        r"that are NaN or infinite, the first in sample 1 \(index \[1\]\)",
    ),
    "negative ids": (
        {"x": X.astype(int) - 1},
        r"1 negative values, the first in sample 0 .*astype\('float32'\)",
    ),
    "complex numbers": ({"x": X.astype(complex)}, "x is complex128"),
    "one number a sample": ({"x": X[:, 0]}, r"x\[:, None\]"),
    "no samples": ({"x": X[:0], "y": []}, "at least one sample"),
    "channels last": ({"x": np.zeros((6, 8, 8, 3), np.uint8)}, r"channels last, .*transpose\(0, 3, 1, 2\)"),
    "test samples of another shape": (
        {**ONE_TEST, "x_test": X[:1, :3]},
        r"shape \(3,\), the training part \(4,\)",
    ),
    "masked values": ({"x": np.ma.masked_where(X == 5, X)}, "x has 1 masked values, the first in sample 1"),
    "a client too few": ({"clients": ["a"] * 5}, "clients has 5 clients for 6 samples"),
    "clients with a fraction": ({"clients": X[:, 0]}, "clients is float32"),
    "test clients alone": ({**ONE_TEST, "test_clients": [0]}, "give both or neither"),
    "a test share above 0.9": ({"test": 0.95}, "mine: test = 0.95"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_in_one_line_that_names_it(case: str) -> None:
    change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        made(**change)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine: ")


def test_data_frames_have_their_columns_in_one_order() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    for tests in (frame[:2], X[:2]):
        assert made(frame, x_test=tests, y_test=[0, 1]).x_test.tolist() == X[:2].tolist()
    with pytest.raises(UsageError, match=r"column 1 of x_test is 'c', and that of x is 'b'.*x_test\[x\.col"):
        made(frame, x_test=frame[list("acbd")], y_test=Y)


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


def test_the_classes_of_a_torch_test_part_are_known_by_their_names() -> None:
    """A test folder that lacks a class numbers the later ones from an earlier number."""
    data = Folder([0, 2, 2], ["ant", "bee", "cat"])
    found = import_torch(data, test_data=Folder([1, 0, 1], ["ant", "cat"]))
    cat = int(found.y[2])
    assert found.y_test.tolist() == [cat, 0, cat]
    with pytest.raises(UsageError, match=r"Folder \(test\): its class 'dog' is not a class of the training"):
        import_torch(data, test_data=Folder([0, 1], ["ant", "dog"]))


def test_a_torch_data_set_is_read_item_by_item_and_its_images_get_their_channels_first() -> None:
    from PIL import Image

    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    found = import_torch(data, test_data=data, clients=[0, 0, 0, 1, 1, 1])
    assert (found.y_test.tolist(), found.name) == (Y.tolist(), "TensorDataset")
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    image = Image.fromarray(pixels)
    assert np.array_equal(import_torch([(image, 0), (image, 1)]).x[1], pixels.transpose(2, 0, 1))
    palette = Image.new("P", (2, 3))
    palette.putpalette([200, 100, 50])
    assert import_torch([(palette, 0), (palette, 1)]).x[1, :, 0, 0].tolist() == [200, 100, 50]
    with pytest.raises(UsageError, match=r"item 1 has shape \(4,\), item 0 \(3,\)"):
        import_torch([(torch.zeros(3), 0), (torch.zeros(4), 1)])


def test_a_reference_has_a_kind_a_place_and_options_and_other_names_are_none() -> None:
    found = parse_reference("csv:data/a table.csv?label=x%26y&client=c++&drop=id,name&test=0.3&seed=7")
    assert (found.kind, found.place) == ("csv", "data/a table.csv")
    options = {"label": "x&y", "client": "c++", "drop": ("id", "name"), "test": 0.3, "seed": 7}
    assert found.options == options
    for other in ("digits", "mylab.data:load", "./data.py:load", "C:\\data\\a.csv"):
        assert parse_reference(other) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("csv:a.csv?lable=y", "option of csv: 'lable'; nearest: label"),
        ("csv:a.csv?label=y&label=z", "label is given twice"),
        ("npz:a.npz?test=half", "test = 'half'; it must be a fraction"),
    ],
)
def test_a_mistyped_reference_is_refused_before_anything_is_read(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_reference(text)


def test_a_bare_path_is_answered_with_the_reference_that_it_means(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 2)), y=np.arange(10) % 2)
    assert guessed(str(tmp_path / "a.npz")) == f"npz:{tmp_path / 'a.npz'}"
    assert guessed(str(tmp_path)) == f"folder:{tmp_path}"
    assert guessed("digits") is guessed("") is None
    with pytest.raises(UsageError, match=r"did you mean npz:.*a\.npz"):
        import_reference(str(tmp_path / "a.npz"))
    found = import_reference(f"npz:{tmp_path / 'a.npz'}?test=0.4")
    assert len(found.y_test) == 4
    assert found.source == f"npz:{tmp_path / 'a.npz'}?test=0.4"


def test_each_class_gives_its_share_rounded() -> None:
    """A class with two samples is trained and tested, and one with a single sample is trained."""
    y = np.repeat([0, 1, 2, 3, 4], [40, 20, 11, 2, 1])
    rows = drawn_test_part(y, None, 0.25, seed=0)
    assert np.bincount(y[rows], minlength=5).tolist() == [10, 5, 3, 1, 0]
    assert rows.tolist() == drawn_test_part(y, None, 0.25, seed=0).tolist()
    assert rows.tolist() != drawn_test_part(y, None, 0.25, seed=1).tolist()


def test_every_client_gives_its_share_to_within_one_sample_of_each_class() -> None:
    y, clients = np.arange(400) % 4, np.repeat(np.arange(10), 40)
    rows = drawn_test_part(y, clients, 0.2, seed=3)
    assert all(abs(count - 8) <= 4 for count in np.bincount(clients[rows], minlength=10))
    for client in range(10):
        own = np.bincount(y[rows[clients[rows] == client]], minlength=4)
        assert set(own.tolist()) <= {1, 2, 3}
    one_each = drawn_test_part(np.array([0, 1] * 20), np.arange(40), 0.5, seed=0)
    assert len(one_each) == 0, "a client with one sample keeps it"


IDS = [[5, 6], [7], [8, 9, 3], [4], [2, 2], [1, 7, 7]]
PADDED = [[5, 6, 0], [7, 0, 0], [8, 9, 3], [4, 0, 0], [2, 2, 0], [1, 7, 7]]
LABELS = ["no", "yes"] * 3
PARTS = [([[5, 6], [7]], ["no", "yes"]), ([[8, 9, 3]], ["no"])]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table = {"ids": IDS, "mask": [[1] * len(row) for row in IDS], "y": LABELS, "who": ["b", "a"] * 3}
    pd.DataFrame(table).to_parquet("t.parquet")
    return tmp_path


def read(more: str, file: str = "t.parquet") -> Imported:
    return import_reference(f"parquet:{file}?label=y&{more}")


@pytest.mark.usefixtures("here")
def test_lists_of_a_parquet_file_are_the_samples() -> None:
    found = read("x=ids&pad=0&client=who&test=0")
    assert (found.x.dtype, found.x.tolist()) == (np.int64, PADDED)
    assert (found.class_names, found.client_names) == (("no", "yes"), ("a", "b"))
    assert found.facts.notes == ("t.parquet: not used: mask; 'ids' holds the samples",)
    drawn = read("x=ids&pad=9")
    assert sorted([*drawn.x.tolist(), *drawn.x_test.tolist()]) == sorted(
        [row + [9] * (3 - len(row)) for row in IDS]
    )
    pd.DataFrame({"x": [[0.5, 1.0], [2.0, 3.0]], "y": ["a", "b"]}).to_parquet("f.parquet")
    floats = read("x=x&test=0", "f.parquet").x
    assert (floats.dtype, floats.tolist()) == (np.float32, [[0.5, 1.0], [2.0, 3.0]])
    nested = pd.DataFrame({"x": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "y": ["a", "b"]})
    nested.to_parquet("n.parquet")
    assert read("x=x&test=0", "n.parquet").x.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


@pytest.mark.usefixtures("here")
def test_both_parts_are_filled_up_to_the_longest_list_of_either() -> None:
    pd.DataFrame({"ids": [[1, 2, 3, 4]], "y": ["yes"]}).to_parquet("u.parquet")
    found = read("x=ids&pad=0&test=u.parquet")
    assert found.x.tolist() == [[*row, 0] for row in PADDED]
    assert found.x_test.tolist() == [[1, 2, 3, 4]]
    parts = {"ids": IDS, "y": LABELS, "part": ["train"] * 4 + ["test"] * 2}
    pd.DataFrame(parts).to_parquet("p.parquet")
    found = read("x=ids&pad=0", "p.parquet")
    assert (found.x.tolist(), found.x_test.tolist()) == (PADDED[:4], PADDED[4:])


@pytest.mark.usefixtures("here")
def test_a_refusal_says_which_option_reads_lists() -> None:
    cases = {
        ("", "t.parquet"): "column 'ids' holds values of type list; x=ids makes lists of ids or numbers",
        ("x=ids", "t.parquet"): "column 'ids' holds lists of unequal lengths, 1 to 3; pad=N fills them up",
        ("x=ids&features=mask", "t.parquet"): "x names a column of lists, and features columns of numbers",
    }
    for (more, file), message in cases.items():
        with pytest.raises(UsageError, match=message) as error:
            read(more, file)
        assert "\n" not in str(error.value)


class Items:
    """A data set whose items are dicts, as those of Hugging Face are."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        x, y = self.names
        return {x: torch.tensor([index, 5]), y: torch.tensor(index % 2), "attention_mask": torch.ones(2)}


@pytest.mark.parametrize("names", [("input_ids", "labels"), ("image", "label"), ("x", "target")])
def test_items_that_are_dicts_are_read_by_usual_names(names: tuple[str, str]) -> None:
    found = Dataset.from_torch(Items(*names))
    assert (found.x.tolist(), found.y.tolist()) == ([[0, 5], [1, 5], [2, 5], [3, 5]], [0, 1, 0, 1])


def test_items_with_other_names_are_read_when_these_are_given() -> None:
    odd = Items("wave", "word")
    with pytest.raises(UsageError, match=r"item 0 has the names wave, word, attention_mask; .* x=NAME"):
        Dataset.from_torch(odd)
    assert Dataset.from_torch(odd, x="wave", y="word").y.tolist() == [0, 1, 0, 1]


class TestHuggingFace:
    """What needs Hugging Face's library."""

    @pytest.fixture(autouse=True)
    def no_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hf = pytest.importorskip("datasets", reason="pip install 'raffed[hf]'")

        def refused(*_: object) -> None:
            raise AssertionError("a host is asked")

        monkeypatch.setattr(socket.socket, "connect", refused)
        monkeypatch.setattr(socket, "getaddrinfo", refused)

    @pytest.mark.usefixtures("here")
    def test_a_local_file_asks_no_host(self) -> None:
        self.hf.Dataset.from_dict({"ids": PADDED, "y": LABELS}).to_parquet("d.parquet")
        assert import_reference("hf:d.parquet?x=ids&label=y&test=0").x.tolist() == PADDED

    def test_lists_and_parts_of_a_dict_are_read(self) -> None:
        train, test = (self.hf.Dataset.from_dict({"ids": rows, "label": ys}) for rows, ys in PARTS)
        found = import_hf(self.hf.DatasetDict({"train": train, "validation": test}), x="ids", pad=0)
        assert found.x.tolist() == [[5, 6, 0], [7, 0, 0]]
        assert found.x_test.tolist() == [[8, 9, 3]]
        assert found.facts.notes == ("hf: 'validation' is the test set (there is no part for tests)",)
        both = self.hf.DatasetDict({"a": train, "b": test})
        assert import_hf(both, x="ids", pad=0, split="a", test_split="b").x_test.tolist() == [[8, 9, 3]]
        with pytest.raises(UsageError, match="lists of unequal lengths, 1 to 2; pad=N"):
            import_hf(train, x="ids")
