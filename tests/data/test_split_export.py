"""A divided data set goes to another tool, and comes back as the same samples of the same clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from raffed.data.importers.pfllib import DividedData, export, import_pfllib
from raffed.data.importers.tables import import_table
from raffed.errors import UsageError

X = np.random.RandomState(0).randint(0, 256, (40, 1, 3, 2)).astype(np.uint8)
Y = np.arange(40) % 4
TRAIN = [np.array([3, 1, 2, 8, 9]), np.array([20, 10, 11, 12, 13, 14, 15])]
TEST = [np.array([4, 5]), np.array([6])]


def divided(x: np.ndarray = X, tests: bool = True) -> DividedData:
    test = TEST if tests else [np.zeros(0, np.int64)] * 2
    return DividedData.of({"train": (x, Y)}, TRAIN, test, "train", 4, "p2c4")


def test_pfllib_reads_back_what_was_written(tmp_path: Path) -> None:
    """PFLlib's `read_data` is np.load(file, allow_pickle=True)["data"].tolist()."""
    path = export(divided(), f"pfllib:{tmp_path / 'out'}")
    found = import_pfllib(path)
    rows, tests = np.concatenate(TRAIN), np.concatenate(TEST)
    assert np.array_equal(found.x, X[rows].astype(np.float32) / np.float32(255))
    assert (found.y.tolist(), found.y_test.tolist()) == (Y[rows].tolist(), Y[tests].tolist())
    assert found.clients.tolist() == [0] * 5 + [1] * 7
    with (path / "train" / "1.npz").open("rb") as file:
        data = np.load(file, allow_pickle=True)["data"].tolist()
    assert data["y"].tolist() == Y[TRAIN[1]].tolist()


def test_exported_pixels_are_divided_by_the_value_that_means_1(tmp_path: Path) -> None:
    """As in training: those of digits go up to 16, so a pixel of 4 is 0.25."""
    y = np.array([0, 1, 0, 1])
    sixteenths = np.array([4, 8, 12, 16], np.uint8).reshape(4, 1, 1, 1)
    lists = [np.arange(3)], [np.array([3])]
    data = DividedData.of({"train": (sixteenths, y)}, *lists, "train", 2, "iid:1", max_value=16)
    found = import_pfllib(export(data, f"pfllib:{tmp_path / 'p'}"))
    assert (found.x.ravel().tolist(), found.x_test.ravel().tolist()) == ([0.25, 0.5, 0.75], [1.0])
    path = export(data, f"flwr:{tmp_path / 'f'}")
    table = parquet.read_table(path / "train.parquet").to_pydict()
    assert np.ravel(table["x"]).tolist() == [0.25, 0.5, 0.75]
    assert table["client"] == [0, 0, 0]
    assert "NaturalIdPartitioner" in (path / "README.txt").read_text()


def test_hugging_face_reads_the_files_for_flwr_back(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="pip install 'raffed[hf]'")
    from raffed.data.importers.reference import import_hf_place

    path = export(divided(), f"flwr:{tmp_path / 'out'}")
    found = import_hf_place(str(path), x="x", label="y", client="client")
    assert np.array_equal(found.x, X[np.concatenate(TRAIN)].astype(np.float32) / np.float32(255))
    assert found.y_test.tolist() == Y[np.concatenate(TEST)].tolist()


def test_a_csv_table_has_a_row_for_each_sample_with_its_client_and_part(tmp_path: Path) -> None:
    path = export(divided(), f"csv:{tmp_path / 'out.csv'}")
    lines = path.read_text().splitlines()
    assert lines[0] == "client,part,label,x0,x1,x2,x3,x4,x5"
    assert lines[1] == ",".join(map(str, [0, "train", Y[3], *X[3].reshape(-1)]))
    assert len(lines) == 1 + 12 + 3
    found = import_table(path, label="label", client="client", drop=("part",), test=0.0)
    assert found.client_names == ("0", "1")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("pfl:out", "kind of export 'pfl'; nearest: pfllib"),
        ("pfllib", "give pfllib:DIR"),
        ("csv:taken.csv", r"taken\.csv exists already"),
        ("pfllib:out", "client 0 has none; give --local-test"),
        ("csv:wide.csv", "5000 values and a csv table gets at most 4096"),
    ],
)
def test_an_export_that_is_not_possible_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.csv").touch()
    data = np.zeros((40, 5000)) if "wide" in target else X
    with pytest.raises(UsageError, match=words):
        export(divided(data, tests=False), target)
