"""npz files and PFLlib's folders: files that a stranger may have made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raffed.data.importers.arrays import import_npz
from raffed.data.importers.client_folders import import_pfllib
from raffed.data.importers.reference import import_reference
from raffed.errors import DataFileError, UsageError
from tests.fuzz.strangers import Trap

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2


def test_a_fault_of_an_npz_file_is_named_and_no_pickle_is_carried_out(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(DataFileError, match=r"a\.npz cannot be read as an npz file"):
        import_npz(path)
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    for arrays, words in (
        ({"x": X}, r"lacks the arrays y; it holds x"),
        ({"first": X, "second": Y}, r"holds first, second; .*a\.npz\?x=NAME&y=NAME"),
        ({"x": trap, "y": Y}, r"Object arrays cannot be loaded when allow_pickle=False"),
        ({"x": X, "y": Y[:3]}, r"a\.npz: y has 3 labels for 20 samples"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(UsageError, match=words):
            import_npz(path)
    assert not (tmp_path / "sprung").exists()


@pytest.fixture
def pfllib(tmp_path: Path) -> Path:
    """Three clients, written as PFLlib's dataset/utils/dataset_utils.py writes them."""
    for part, client in ((part, client) for part in ("train", "test") for client in range(3)):
        (tmp_path / part).mkdir(exist_ok=True)
        data = {"x": X + client, "y": Y}
        with (tmp_path / part / f"{client}.npz").open("wb") as file:
            np.savez_compressed(file, data=data)
    (tmp_path / "config.json").write_text(json.dumps({"num_clients": 3, "num_classes": 2}))
    return tmp_path


def test_a_folder_of_pfllib_has_a_client_for_each_file(pfllib: Path) -> None:
    found = import_pfllib(pfllib)
    assert np.array_equal(found.x, np.concatenate([X, X + 1, X + 2]))
    assert found.clients.tolist() == found.test_clients.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert found.client_names == ("0", "1", "2")


def _pickled(path: Path, content: object) -> None:
    np.savez_compressed(path, data=np.array(content, dtype=object))


def test_the_classes_that_config_json_names_are_compared_with_those_that_were_read(pfllib: Path) -> None:
    assert import_pfllib(pfllib).facts.notes == ()
    (pfllib / "config.json").write_text(json.dumps({"num_clients": 3, "num_classes": 10}))
    assert "names 10 classes, and the training samples have 2" in import_pfllib(pfllib).facts.notes[0]


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "another number of clients": (
        lambda folder: (folder / "config.json").write_text('{"num_clients": 4}'),
        r"config\.json names 4 clients, but .*train holds 3 files",
    ),
    "no test file": (lambda folder: (folder / "test" / "2.npz").unlink(), r"test/2\.npz is missing"),
    "a client twice": (
        lambda folder: (folder / "train" / "2.npz").rename(folder / "train" / "01.npz"),
        r"01\.npz and .*1\.npz are both client 1",
    ),
    "shapes": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X[:, :2], "y": Y}),
        r"1\.npz: samples are numbers \(2,\), labels \(\), the first client's numbers \(3,\)",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_fault_of_a_folder_is_refused_in_one_line_that_names_the_file(pfllib: Path, case: str) -> None:
    spoil, words = SPOILT[case]
    spoil(pfllib)
    with pytest.raises(DataFileError, match=words) as error:
        import_pfllib(pfllib)
    assert "\n" not in str(error.value)


# Folders of LEAF's tasks: lists of numbers, texts of one length with the next character, and other texts.


def write(root: Path, part: str, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    """One file of LEAF's with these users' samples and labels."""
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    place = root / part / f"all_data_{part}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    sizes = [len(y) for _, y in users.values()]
    place.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": data}))


NUMBERS = {"u2": ([[0.5, 1.0], [1.5, 2.0]], [0, 1]), "u1": ([[2.5, 3.0]], [1]), "empty": ([], [])}


@pytest.mark.parametrize("below", ["", "data"])
def test_users_are_clients_by_name_and_test_on_their_own_samples(below: str, tmp_path: Path) -> None:
    write(tmp_path / below, "train", NUMBERS)
    write(tmp_path / below, "test", {"u2": ([[9.0, 9.0]], [1])})
    found = import_reference(f"leaf:{tmp_path}")
    assert found.client_names == ("u1", "u2")
    assert found.clients is not None
    assert found.test_clients is not None
    assert (found.clients.tolist(), found.test_clients.tolist()) == ([0, 1, 1], [1])
    assert found.x.dtype == np.float32
    assert (found.x.tolist(), found.y.tolist()) == ([[2.5, 3.0], [0.5, 1.0], [1.5, 2.0]], [1, 0, 1])
    assert (found.x_test.tolist(), found.y_test.tolist()) == ([[9.0, 9.0]], [1])


def test_texts_of_one_length_become_ids_of_their_characters_in_both_parts(tmp_path: Path) -> None:
    """Characters are numbered in their order over both parts: blank 0, a 1, b 2, c 3."""
    write(tmp_path, "train", {"u": (["ab ", "ba "], [" ", "a"])})
    write(tmp_path, "test", {"u": (["cab"], ["a"])})
    found = import_reference(f"leaf:{tmp_path}")
    assert found.x.dtype == np.int64
    assert (found.x.tolist(), found.x_test.tolist()) == ([[1, 2, 0], [2, 1, 0]], [[3, 1, 2]])
    assert found.class_names == ("' '", "'a'")
    assert "ids of 4 characters" in found.facts.notes[0]


def test_other_texts_and_samples_of_different_lengths_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", {"u": (["good day", "bad"], [0, 1])})
    with pytest.raises(DataFileError, match="tokenizer"):
        import_reference(f"leaf:{tmp_path}")
    write(tmp_path, "train", {"u": ([[1.0], [1.0, 2.0]], [0, 1])})
    with pytest.raises(UsageError, match="different lengths"):
        import_reference(f"leaf:{tmp_path}")
