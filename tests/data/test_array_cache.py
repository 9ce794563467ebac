"""The stored arrays by content: once, complete, private and checked."""

from __future__ import annotations

import os
import stat
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raffed.data.array_cache import ArrayCache, StoredArrays, cache_folder
from raffed.errors import DataFileError, UsageError

X = np.arange(3000, dtype=np.float32).reshape(100, 30)


def stored(shift: int = 0, name: str = "mine") -> StoredArrays:
    arrays = {"x": X + shift, "y": np.arange(100)}
    return StoredArrays(arrays, {"class_names": ("a", "b")}, name, "npz:a.npz")


@pytest.fixture
def cache(tmp_path: Path) -> ArrayCache:
    return ArrayCache(tmp_path / "cache")


def test_what_was_put_in_comes_out_and_is_read_only(cache: ArrayCache) -> None:
    found = cache.get(cache.put(stored()))
    assert np.array_equal(found.arrays["x"], X)
    assert found.words == {"class_names": ("a", "b")}
    assert (found.name, found.source) == ("mine", "npz:a.npz")
    assert type(found.arrays["x"]) is np.ndarray
    assert not found.arrays["x"].flags.writeable


def test_the_hash_is_that_of_types_shapes_bytes_and_class_names_and_of_nothing_else() -> None:
    first = stored()
    same = [
        stored(name="other"),
        replace(first, arrays={"y": np.arange(100), "x": np.asfortranarray(X)}),
        replace(first, arrays={**first.arrays, "x": X.astype(">f4")}),
    ]
    other = [
        stored(1),
        replace(first, arrays={**first.arrays, "x": X.astype("f8")}),
        replace(first, arrays={**first.arrays, "x": X.reshape(30, 100)}),
        replace(first, arrays={"x_test": X, "y": first.arrays["y"]}),
        replace(first, words={"class_names": ("b", "a")}),
    ]
    assert {one.sha256() for one in same} == {first.sha256()}
    assert len({one.sha256() for one in [first, *other]}) == 6


def test_the_same_arrays_are_stored_once_and_without_pickles(cache: ArrayCache) -> None:
    assert cache.put(stored()) == cache.put(stored(name="again"))
    (file,) = (path for path in cache.folder.rglob("*") if path.is_file())
    with zipfile.ZipFile(file) as parts:
        assert all(parts.read(name)[:6] == b"\x93NUMPY" for name in parts.namelist())
    with np.load(file, allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays.files} == {"x": "f", "y": "i", "about": "U"}


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_may_enter_the_cache(cache: ArrayCache) -> None:
    cache.folder.mkdir(mode=0o755)
    cache.put(stored())
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_what_is_missing_is_named_with_the_way_to_bring_it_back(cache: ArrayCache) -> None:
    sha256 = stored().sha256()
    with pytest.raises(
        DataFileError, match=rf"{sha256[:12]}… are not in the cache .*same command writes them"
    ):
        cache.get(sha256)
    with pytest.raises(UsageError, match="not a SHA-256"):
        cache.get("../../etc")


@pytest.mark.parametrize("spoil", ["bit", "cut", "no about", "other arrays"])
def test_a_damaged_file_is_refused_and_says_how_to_replace_it(cache: ArrayCache, spoil: str) -> None:
    sha256 = cache.put(stored())
    file = cache.file_of(sha256)
    if spoil == "bit":
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        file.write_bytes(bytes(raw))
    elif spoil == "cut":
        file.write_bytes(file.read_bytes()[:500])
    elif spoil == "no about":
        np.savez(file, x=X)
    else:
        file.write_bytes(cache.file_of(cache.put(stored(1))).read_bytes())
    with pytest.raises(DataFileError, match=rf"{sha256}\.npz is damaged; remove it"):
        cache.get(sha256)
    file.unlink()
    assert cache.put(stored()) == sha256
    cache.get(sha256)


def test_many_writers_of_one_entry_do_not_disturb_each_other(cache: ArrayCache) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(cache.put(stored()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8
    assert len(list((cache.folder / "arrays").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataFileError, match=r"cannot be written .*set RAFFED_CACHE"):
        ArrayCache(tmp_path / "file" / "cache").put(stored())


def test_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
