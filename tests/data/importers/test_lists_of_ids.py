"""Lists of ids in tables, data frames, data sets of Hugging Face's and items that are dicts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from raffed.data.dataset import Dataset
from raffed.data.importers.imported import Imported
from raffed.data.importers.reference import import_hf, import_reference
from raffed.errors import UsageError

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
