"""npz files and PFLlib's folders: files that a stranger may have made."""

from __future__ import annotations

import json
import pickle
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


@pytest.mark.parametrize("kind", ["f8", ">f4", "u1", "i4", "?"])
def test_arrays_of_any_type_and_order_are_read_from_a_pickle_as_numpy_reads_them(
    pfllib: Path, kind: str
) -> None:
    x = np.asfortranarray(X % 2).astype(kind)
    for part, client in ((part, client) for part in ("train", "test") for client in range(3)):
        np.savez_compressed(pfllib / part / f"{client}.npz", data=np.array({"x": x, "y": Y}, dtype=object))
    assert np.array_equal(import_pfllib(pfllib).x[:20].astype(np.float64), (X % 2).astype(np.float64))


def _trapped(path: Path, content: object) -> None:
    np.savez_compressed(path, data=np.array(content, dtype=object))


def _raw(path: Path, pickled: bytes) -> None:
    """Write an npz file whose data are this pickle."""
    import io
    import zipfile

    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|O", "fortran_order": False, "shape": ()})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.npy", head.getvalue() + pickled)


def _names(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n)R.".encode()


TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "an object beside the arrays": lambda path, flag: _trapped(path, {"x": X, "y": Y, "z": Trap(flag)}),
    "an object in place of the dictionary": lambda path, flag: _trapped(path, Trap(flag)),
    "an object as a key": lambda path, flag: _trapped(path, {Trap(flag): X}),
    "an object inside an array": lambda path, flag: _trapped(
        path, {"x": np.array([Trap(flag)] * 20, dtype=object), "y": Y}
    ),
    "a call of the system": lambda path, flag: _raw(path, f"cos\nsystem\n(S'touch {flag}'\ntR.".encode()),
    "eval": lambda path, flag: _raw(
        path, f"cbuiltins\neval\n(S'open({str(flag)!r}, chr(119))'\ntR.".encode()
    ),
    "a function of NumPy that reads pickles": lambda path, flag: _raw(path, _names("numpy", "load")),
    "a dotted name": lambda path, flag: _raw(path, b"\x80\x04\x8c\x05numpy\x8c\x08f2py.sys\x93."),
    "an array of any size": lambda path, flag: _raw(
        path, b"cnumpy.core.multiarray\n_reconstruct\n(cbuiltins\nobject\n(I99\ntS'b'\ntR."
    ),
    "attributes of the stand-in": lambda path, flag: _raw(
        path, b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}X\x01\x00\x00\x00aK\x01s\x86b."
    ),
    "a type of several fields": lambda path, flag: _trapped(
        path, {"x": np.zeros(20, [("a", "f4"), ("b", "O")]), "y": Y}
    ),
    "an object outside the pickle": lambda path, flag: _raw(path, b"Pelsewhere\n."),
    "a pickle that ends early": lambda path, flag: _raw(path, pickle.dumps({"x": X})[:40]),
    "no pickle": lambda path, flag: _raw(path, b"nonsense"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_booby_trapped_file_of_pfllib_is_refused_and_does_nothing(
    pfllib: Path, tmp_path: Path, trap: str
) -> None:
    flag = tmp_path / "sprung"
    TRAPS[trap](pfllib / "train" / "1.npz", flag)
    with pytest.raises(DataFileError, match=r"train/1\.npz is (refused|a damaged pickle)") as error:
        import_pfllib(pfllib)
    assert "\n" not in str(error.value)
    assert not flag.exists()


@pytest.mark.parametrize("x", [{"a": X}, 3, [1, 2], b"12"])
def test_what_is_no_array_in_a_file_of_pfllib_is_named(pfllib: Path, x: object) -> None:
    _trapped(pfllib / "train" / "1.npz", {"x": x, "y": Y})
    with pytest.raises(DataFileError, match=rf"1\.npz is refused: 'x' holds a {type(x).__name__};"):
        import_pfllib(pfllib)


def test_one_label_for_all_samples_of_a_file_of_pfllib_is_refused(pfllib: Path) -> None:
    _trapped(pfllib / "train" / "1.npz", {"x": X, "y": np.array(1)})
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
    "no y": (
        lambda folder: _trapped(folder / "train" / "0.npz", {"x": X}),
        r"0\.npz holds x, but must hold x and y",
    ),
    "lengths": (
        lambda folder: _trapped(folder / "train" / "0.npz", {"x": X, "y": Y[:3]}),
        "must be one label per sample",
    ),
    "shapes": (
        lambda folder: _trapped(folder / "train" / "1.npz", {"x": X[:, :2], "y": Y}),
        r"1\.npz: samples have shape \(2,\), the first client's \(3,\)",
    ),
    "pixels beside floats": (
        lambda folder: _trapped(folder / "train" / "1.npz", {"x": X.astype(np.uint8), "y": Y}),
        r"1\.npz: samples are uint8, the first client's float32; uint8 holds pixels",
    ),
    "labels in a column": (
        lambda folder: _trapped(folder / "train" / "1.npz", {"x": X, "y": Y[:, None]}),
        r"1\.npz: y has shape \(20, 1\), the first client's \(20,\)",
    ),
    "not an npz file": (
        lambda folder: (folder / "train" / "1.npz").write_bytes(b"x"),
        r"1\.npz cannot be read",
    ),
    "other arrays": (
        lambda folder: np.savez(folder / "train" / "1.npz", x=X, y=Y),
        r"holds x\.npy, y\.npy, but must hold only data",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_fault_of_a_folder_is_refused_in_one_line_that_names_the_file(pfllib: Path, case: str) -> None:
    spoil, words = SPOILT[case]
    spoil(pfllib)
    with pytest.raises(DataFileError, match=words) as error:
        import_pfllib(pfllib)
    assert "\n" not in str(error.value)
