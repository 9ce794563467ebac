"""FEMNIST files come from strangers: whatever is wrong in them ends in a DataFileError that says where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raffed.data.datasets import load_dataset
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.errors import DataFileError


def npz_arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "labels": np.array([0, 61, 5, 5, 10], dtype=np.uint8),
        "writer": np.array([1, 1, 0, 2, 2], dtype=np.uint16),
        "writer_ids": np.array(["a", "b", "c"]),
    }
    return arrays | changes


def write_npz(root: Path, arrays: dict[str, Any], name: str = "some.npz") -> Path:
    (root / "FEMNIST").mkdir(exist_ok=True)
    np.savez(root / "FEMNIST" / name, **arrays)
    return root / "FEMNIST" / name


def leaf(users: dict[str, list[int]]) -> dict[str, Any]:
    """LEAF's json: user -> labels; each image is constant, label / 255."""
    data = {
        user: {"x": [[label / 255] * 784 for label in labels], "y": labels} for user, labels in users.items()
    }
    return {
        "users": list(users),
        "num_samples": [len(labels) for labels in users.values()],
        "user_data": data,
    }


def write_leaf(root: Path, content: Any, name: str = "all.json") -> None:
    path = root / "FEMNIST" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_the_npz_layout_gives_images_labels_and_writers(tmp_path: Path) -> None:
    arrays = npz_arrays()
    write_npz(tmp_path, arrays)
    got = load_dataset("femnist", tmp_path)
    np.testing.assert_array_equal(got.x[:, 0], arrays["images"])
    assert got.y.tolist() == [0, 61, 5, 5, 10]
    assert got.clients.tolist() == [1, 1, 0, 2, 2]
    assert (got.x_test.shape, got.num_classes, got.max_value) == ((0, 1, 28, 28), 62, 255)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": np.array([0, 62, 5, 5, 10])}, r"labels lies in 0\.\.62, but must lie in 0\.\.61"),
        ({"labels": np.array([0.0, 1, 2, 3, 4])}, "labels is float64"),
        ({"labels": np.array([0, 1])}, r"labels is int64 \(2,\)"),
        ({"writer": np.array([0, 1, 2, 3, 0])}, r"writer lies in 0\.\.3, but must lie in 0\.\.2"),
        ({"images": np.zeros((5, 28, 27), np.uint8)}, r"images are uint8 \(5, 28, 27\)"),
        ({"images": np.zeros((0, 28, 28), np.uint8)}, r"images are uint8 \(0, 28, 28\)"),
        ({"writer_ids": np.array([{}], dtype=object)}, "damaged npz|allow_pickle"),
        ({"writer": None}, "lacks the arrays writer"),
    ],
)
def test_an_npz_with_a_wrong_array_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    arrays = {name: one for name, one in npz_arrays(**changes).items() if one is not None}
    write_npz(tmp_path, arrays)
    with pytest.raises(DataFileError, match=said):
        load_dataset("femnist", tmp_path)


def test_leaf_json_gives_the_same_whatever_the_order_of_users_and_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_leaf(one, leaf({"b": [3], "a": [1, 2]}))
    write_leaf(two, leaf({"a": [1, 2]}), "train/z.json")
    write_leaf(two, leaf({"b": [3], "empty": []}), "train/y.json")
    for root in (one, two):
        got = load_dataset("femnist", root)
        assert got.y.tolist() == [1, 2, 3]
        assert got.clients.tolist() == [0, 0, 1]
        np.testing.assert_array_equal(got.x[:, 0, 14, 14], [1, 2, 3], "value / 255 comes back exactly")
        assert len(got.x_test) == 0


def broken_leaf() -> dict[str, Any]:
    """Each entry: one thing wrong."""

    def one(x: Any, y: Any, count: Any = 1) -> dict[str, Any]:
        return {"users": ["a"], "num_samples": [count], "user_data": {"a": {"x": x, "y": y}}}

    image = [[0.0] * 784]
    return {
        "not json": "{",
        "too deep": "[" * 100_000,
        "no users": {"num_samples": [], "user_data": {}},
        "user missing": {**one(image, [1]), "users": ["a", "b"], "num_samples": [1, 1]},
        "users twice": {**one(image, [1]), "users": ["a", "a"], "num_samples": [1, 1]},
        "unhashable user": {**one(image, [1]), "users": [["a"]]},
        "wrong count": one(image, [1], 2),
        "label 62": one(image, [62]),
        "label 1.5": one(image, [1.5]),
        "ragged": one([*image, [0.0]], [1, 1], 2),
        "pixel 2": one([[2.0] * 784], [1]),
        "pixel nan": one([[float("nan")] * 784], [1]),
        "text pixels": one([["0"] * 784], [1]),
        "huge integer": one([[10**400] * 784], [1]),
        "x not a list": one(3, [1]),
    }


@pytest.mark.parametrize("fault", broken_leaf())
def test_a_leaf_file_with_one_fault_is_refused(fault: str, tmp_path: Path) -> None:
    write_leaf(tmp_path, broken_leaf()[fault])
    with pytest.raises(DataFileError, match="FEMNIST"):
        load_dataset("femnist", tmp_path)


def test_the_letters_are_a_to_j_numbered_from_0_with_their_writers_numbered_anew(tmp_path: Path) -> None:
    """Labels 36 to 45 of 62 are a to j; writer 0 has none of them here."""
    labels = np.array([36, 45, 35, 46, 40], dtype=np.uint8)
    arrays = npz_arrays(labels=labels, writer=np.array([1, 2, 0, 0, 1], dtype=np.uint16))
    write_npz(tmp_path, arrays)
    got = load_dataset("femnist-letters", tmp_path)
    np.testing.assert_array_equal(got.x[:, 0], arrays["images"][[0, 1, 4]])
    assert (got.y.tolist(), got.num_classes) == ([0, 9, 4], 10)
    assert got.clients.tolist() == [0, 1, 0]
    write_npz(tmp_path, npz_arrays())
    with pytest.raises(DataFileError, match="none of the letters a to j"):
        load_dataset("femnist-letters", tmp_path)


def test_leaf_s_own_tree_is_found_and_its_test_rows_are_the_writers_own(tmp_path: Path) -> None:
    """`all_data`, which LEAF leaves beside its train and test parts, is read where nothing was divided."""
    trained, tested = {"a": [1, 2], "b": [3]}, {"b": [4], "a": [5], "z": [6]}
    for part, users in (("all_data", {"a": [1]}), ("train", trained), ("test", tested)):
        path = tmp_path / "femnist" / "data" / part / "all_data_0.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(leaf(users)))
        if part == "all_data":
            alone = load_dataset("femnist", tmp_path)
            assert (alone.y.tolist(), len(alone.y_test), alone.test_clients) == ([1], 0, None)
    got = load_dataset("femnist", tmp_path)
    assert (got.y.tolist(), got.clients.tolist()) == ([1, 2, 3], [0, 0, 1])
    assert (got.y_test.tolist(), got.test_clients.tolist()) == ([5, 4, 6], [0, 1, -1])
    request = parse_split("natural"), got.y, 62, got.clients, 0
    own = make_partition(*request, None, got.y_test, got.test_clients)
    assert own.test_pool == "test"
    assert [part.tolist() for part in own.test] == [[0], [1]]
    cut = make_partition(*request, 0.0, got.y_test, got.test_clients)
    assert [part.tolist() for part in cut.test] == [[], []]
