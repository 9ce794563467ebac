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


@pytest.mark.parametrize(
    ("x", "y", "who"), [("x", "y", "clients"), ("x_train", "y_train", "client"), ("X", "labels", "groups")]
)
def test_an_npz_file_is_read_under_its_usual_names(tmp_path: Path, x: str, y: str, who: str) -> None:
    np.savez(
        tmp_path / "a.npz",
        **{x: X, y: Y, who: Y, "x_test": X[:4], "y_test": Y[:4], "class_names": ["no", "yes"]},
    )
    found = import_npz(tmp_path / "a.npz")
    assert np.array_equal(found.x, X)
    assert found.class_names == ("no", "yes")
    assert found.clients is not None
    assert len(found.y_test) == 4


def test_an_npz_file_without_a_test_set_gives_a_fifth_of_each_class(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=X, kinds=Y)
    found = import_npz(tmp_path / "a.npz", x="images", y="kinds")
    assert np.bincount(found.y_test).tolist() == [2, 2]


def test_a_fault_of_an_npz_file_is_refused_in_one_line_that_names_file_and_array(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(DataFileError, match=r"a\.npz is missing"):
        import_npz(path)
    path.write_bytes(b"PK nonsense")
    with pytest.raises(DataFileError, match=r"a\.npz cannot be read as an npz file"):
        import_npz(path)
    np.savez(path, x=X)
    with pytest.raises(DataFileError, match=r"lacks the arrays y; it holds x"):
        import_npz(path)
    np.savez(path, x=np.array([X, None], dtype=object), y=Y)
    with pytest.raises(DataFileError, match=r"the array 'x' holds Python objects"):
        import_npz(path)
    np.savez(path, x=X, y=Y[:3])
    with pytest.raises(UsageError, match=r"a\.npz: y has 3 labels for 20 samples"):
        import_npz(path)


def test_a_pickle_in_an_npz_file_is_never_carried_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([Trap(tmp_path / "sprung")], dtype=object), y=Y)
    with pytest.raises(DataFileError, match="Python objects"):
        import_npz(tmp_path / "a.npz")
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
    assert found.clients is not None
    assert found.test_clients is not None
    assert found.clients.tolist() == found.test_clients.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert found.client_names == ("0", "1", "2")


def _pickled(path: Path, content: object) -> None:
    np.savez_compressed(path, data=np.array(content, dtype=object))


@pytest.mark.parametrize("content", [{"x": X}, [1, 2], 3], ids=["no y", "a list", "a number"])
def test_what_is_no_dictionary_of_x_and_y_is_named(pfllib: Path, content: object) -> None:
    _pickled(pfllib / "train" / "1.npz", content)
    with pytest.raises(
        DataFileError, match=r"1\.npz cannot be read as a file of PFLlib's, a dictionary with x"
    ):
        import_pfllib(pfllib)


def test_the_classes_that_config_json_names_are_compared_with_those_that_were_read(pfllib: Path) -> None:
    assert import_pfllib(pfllib).facts.notes == ()
    (pfllib / "config.json").write_text(json.dumps({"num_clients": 3, "num_classes": 10}))
    assert "names 10 classes, and the training samples have 2" in import_pfllib(pfllib).facts.notes[0]


def test_one_label_for_all_samples_of_a_file_of_pfllib_is_refused(pfllib: Path) -> None:
    _pickled(pfllib / "train" / "1.npz", {"x": X, "y": np.array(1)})
    with pytest.raises(DataFileError, match="one label per sample"):
        import_pfllib(pfllib)


def _config(folder: Path) -> None:
    (folder / "config.json").write_text('{"num_clients": 4}')


def _no_test(folder: Path) -> None:
    (folder / "test" / "2.npz").unlink()


def _twice(folder: Path) -> None:
    (folder / "train" / "02.npz").write_bytes((folder / "train" / "2.npz").read_bytes())


def _no_train(folder: Path) -> None:
    (folder / "train").rename(folder / "elsewhere")


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "another number of clients": (_config, r"config\.json names 4 clients, but .*train holds 3 files"),
    "a damaged config": (
        lambda folder: (folder / "config.json").write_text("{"),
        r"config\.json cannot be read",
    ),
    "no test file": (_no_test, r"test/2\.npz is missing"),
    "a client twice": (_twice, r"02\.npz and .*2\.npz are both client 2"),
    "no folder": (_no_train, "train is missing; PFLlib's folders have"),
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
        r"1\.npz: samples have shape \(2,\), the first client's \(3,\)",
    ),
    "pixels beside floats": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X.astype(np.uint8), "y": Y}),
        r"1\.npz: samples are pixels \(uint8\), the first client's numbers",
    ),
    "labels in a column": (
        lambda folder: _pickled(folder / "train" / "1.npz", {"x": X, "y": Y[:, None]}),
        r"1\.npz: labels have shape \(1,\), the first client's \(\)",
    ),
    "not an npz file": (
        lambda folder: (folder / "train" / "1.npz").write_bytes(b"x"),
        r"1\.npz cannot be read",
    ),
    "other arrays": (
        lambda folder: np.savez(folder / "train" / "1.npz", x=X, y=Y),
        r"1\.npz cannot be read as a file of PFLlib's",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_fault_of_a_folder_is_refused_in_one_line_that_names_the_file(pfllib: Path, case: str) -> None:
    spoil, words = SPOILT[case]
    spoil(pfllib)
    with pytest.raises(DataFileError, match=words) as error:
        import_pfllib(pfllib)
    assert "\n" not in str(error.value)
