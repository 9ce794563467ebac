"""npz files and PFLlib's folders: files that a stranger may have made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raffed.data.importers.arrays import import_npz
from raffed.data.importers.pfllib import import_pfllib
from raffed.errors import DataFileError, UsageError

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 2


class Trap:
    """An object whose pickle writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_an_npz_file_without_a_test_set_gives_a_fifth_of_each_class(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=X, kinds=Y)
    found = import_npz(tmp_path / "a.npz", x="images", y="kinds")
    assert np.bincount(found.y_test).tolist() == [2, 2]


def test_a_fault_of_an_npz_file_is_named_and_no_pickle_is_carried_out(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(DataFileError, match=r"a\.npz is missing"):
        import_npz(path)
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
    "a damaged config": (
        lambda folder: (folder / "config.json").write_text("{"),
        r"config\.json cannot be read",
    ),
    "no test file": (lambda folder: (folder / "test" / "2.npz").unlink(), r"test/2\.npz is missing"),
    "a client twice": (
        lambda folder: (folder / "train" / "2.npz").rename(folder / "train" / "01.npz"),
        r"01\.npz and .*1\.npz are both client 1",
    ),
    "no folder": (
        lambda folder: (folder / "train").rename(folder / "elsewhere"),
        "train is missing; PFLlib's folders have",
    ),
    "a name": (
        lambda folder: (folder / "train" / "a.npz").touch(),
        r"a\.npz: the name is not a client's number",
    ),
    "lengths": (
        lambda folder: _pickled(folder / "train" / "0.npz", {"x": X, "y": Y[:3]}),
        "must be one label per sample",
    ),
    "shapes": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X[:, :2], "y": Y}),
        r"1\.npz: samples are numbers \(2,\), labels \(\), the first client's numbers \(3,\)",
    ),
    "pixels beside floats": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X.astype(np.uint8), "y": Y}),
        r"1\.npz: samples are pixels \(uint8\) .*, the first client's numbers",
    ),
    "not a dictionary of x and y": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X}),
        r"1\.npz cannot be read as an npz file: KeyError: 'y'",
    ),
    "not an npz file": (
        lambda folder: (folder / "train" / "1.npz").write_bytes(b"x"),
        r"1\.npz cannot be read",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_fault_of_a_folder_is_refused_in_one_line_that_names_the_file(pfllib: Path, case: str) -> None:
    spoil, words = SPOILT[case]
    spoil(pfllib)
    with pytest.raises(DataFileError, match=words) as error:
        import_pfllib(pfllib)
    assert "\n" not in str(error.value)
