"""Folders of LEAF's tasks: lists of numbers, texts of one length with the next character, and other texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raffed.data.importers.reference import import_reference
from raffed.errors import DataFileError, UsageError


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


@pytest.mark.parametrize(
    "texts", [["good day", "bad"], [["1", "good day"], ["2", "bad day"]], ["0001.jpg", "0002.jpg"]]
)
def test_other_texts_are_refused_with_the_word_tokenizer(texts: list[Any], tmp_path: Path) -> None:
    write(tmp_path, "train", {"u": (texts, [0, 1])})
    with pytest.raises(DataFileError, match="tokenizer"):
        import_reference(f"leaf:{tmp_path}")


def test_samples_of_different_lengths_and_a_folder_without_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"there is no train/\*.json"):
        import_reference(f"leaf:{tmp_path}")
    write(tmp_path, "train", {"u": ([[1.0], [1.0, 2.0]], [0, 1])})
    with pytest.raises(UsageError, match="different lengths"):
        import_reference(f"leaf:{tmp_path}")


def test_without_a_test_part_one_is_drawn(tmp_path: Path) -> None:
    write(tmp_path, "all_data", {"u": ([[float(i)] for i in range(20)], [0, 1] * 10)})
    found = import_reference(f"leaf:{tmp_path}?test=0.3")
    assert (len(found.y), len(found.y_test)) == (14, 6)
