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
from raffed.data.importers.reference import import_hf, import_reference, load_parts
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
    words = pd.DataFrame({"words": ["a b", "c d"], "gap": [[1], None], "y": ["no", "yes"]})
    words.to_parquet("w.parquet")
    cases = {
        ("", "t.parquet"): "column 'ids' holds values of type list; x=ids makes lists of ids or numbers",
        ("x=ids", "t.parquet"): "column 'ids' holds lists of unequal lengths, 1 to 3; pad=N fills them up",
        ("x=words", "w.parquet"): "'words' holds something else than numbers in row 0; .*own_data.md shows",
        ("x=gap&pad=0&missing=mean", "w.parquet"): "column 'gap' has 1 missing values, the first in row 1",
        ("x=ids&features=mask", "t.parquet"): "x names a column of lists, and features columns of numbers",
        ("pad=0", "t.parquet"): "pad=0 is for lists; also give x=COLUMN",
        ("x=idz", "t.parquet"): "for x 'idz'; nearest: ids",
        ("x=y", "t.parquet"): "column 'y' is a feature and also a label",
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

    def test_an_array_of_bytes_holds_pixels(self) -> None:
        """As in data sets whose images are stored as arrays; other integers are ids."""
        for dtype, kind, shape in (("uint8", np.uint8, (1, 2, 3)), ("int32", np.int64, (2, 3))):
            features = self.hf.Features(
                {"img": self.hf.Array2D(shape=(2, 3), dtype=dtype), "label": self.hf.Value("string")}
            )
            images = np.arange(12).reshape(2, 2, 3)
            data = self.hf.Dataset.from_dict({"img": images.tolist(), "label": ["a", "b"]}, features=features)
            found = import_hf(data, x="img", test=0.0).x
            assert (found.dtype, found.shape[1:]) == (kind, shape)
            assert found.reshape(images.shape).tolist() == images.tolist()

    def test_a_table_keeps_the_names_of_its_classes_and_its_test_part(self) -> None:
        kinds = self.hf.Features(
            {
                "age": self.hf.Value("float32"),
                "sex": self.hf.ClassLabel(names=["m", "f"]),
                "label": self.hf.ClassLabel(names=["well", "ill"]),
            }
        )
        rows = {"age": [0.0, 2.0], "sex": [0, 1], "label": [0, 1]}
        train, test = (self.hf.Dataset.from_dict(rows, features=kinds) for _ in range(2))
        found = import_hf(self.hf.DatasetDict({"train": train, "test": test}))
        assert found.class_names == ("ill", "well")
        assert [column.categories for column in found.facts.columns] == [(), ("f", "m")]
        assert found.x.tolist() == found.x_test.tolist() == [[-1, 0, 1], [1, 1, 0]]
        assert found.y_test.tolist() == [1, 0]
        unlabelled = self.hf.Dataset.from_dict({**rows, "label": [0, -1]}, features=kinds)
        with pytest.raises(UsageError, match="column 'label' has 1 missing values"):
            import_hf(unlabelled)

    @pytest.mark.usefixtures("here")
    @pytest.mark.parametrize("form", ["parquet", "json", "folder", "saved"])
    def test_a_local_file_or_folder_asks_no_host(self, form: str) -> None:
        data = self.hf.Dataset.from_dict({"ids": PADDED, "y": LABELS})
        place = {"parquet": "d.parquet", "json": "./d.jsonl"}.get(form, form)
        if form == "parquet":
            data.to_parquet(place)
        elif form == "json":
            data.to_json(place)
        elif form == "saved":
            data.save_to_disk(place)
        else:
            Path(form).mkdir()
            data.to_parquet("folder/train.parquet")
        asked = self.hf.config.HF_HUB_OFFLINE
        found = import_reference(f"hf:{place}?x=ids&label=y&test=0")
        assert found.x.tolist() == PADDED
        assert asked == self.hf.config.HF_HUB_OFFLINE
        assert list(load_parts(place)) == ["train"]

    @pytest.mark.usefixtures("here")
    @pytest.mark.parametrize("place", ["no.parquet", "./no", "a/b/c", "~/no"])
    def test_what_can_only_be_a_path_is_missing(self, place: str) -> None:
        with pytest.raises(UsageError, match=f"{place} is missing"):
            load_parts(place)
        Path("x.bin").write_bytes(b"")
        with pytest.raises(UsageError, match=r"of files, those that end in \.arrow, \.parquet"):
            load_parts("x.bin")
