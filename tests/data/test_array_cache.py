"""The store of arrays by content: once, complete, private, checked, and no larger than its limit."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raffed.data.array_cache import ArrayCache, cache_folder, limit_bytes
from raffed.data.stored_arrays import StoredArrays
from raffed.errors import DataFileError, UsageError

X = np.arange(3000, dtype=np.float32).reshape(100, 30)


def stored(shift: int = 0, name: str = "mine") -> StoredArrays:
    arrays = {"x": X + shift, "y": np.arange(100)}
    return StoredArrays(arrays, {"class_names": ("a", "b")}, name, "npz:a.npz")


@pytest.fixture
def cache(tmp_path: Path) -> ArrayCache:
    return ArrayCache(tmp_path / "cache", 10**9)


def test_what_was_put_in_comes_out_mapped_and_read_only(cache: ArrayCache) -> None:
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
    assert len(cache.entries()) == 1
    files = [path for path in cache.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".npy", ".json"}
    assert all(b"pickle" not in path.read_bytes() for path in files)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_may_enter_the_cache(cache: ArrayCache) -> None:
    cache.folder.mkdir(mode=0o755)
    cache.put(stored())
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_the_least_recently_used_entries_make_room(tmp_path: Path) -> None:
    size = stored().arrays["x"].nbytes + stored().arrays["y"].nbytes
    cache = ArrayCache(tmp_path, int(2.7 * size))
    old, kept = cache.put(stored(0)), cache.put(stored(1))
    for age, sha256 in ((50, old), (100, kept)):
        path = next(tmp_path.rglob(sha256)) / "about.json"
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    cache.get(kept)
    new = cache.put(stored(2))
    assert {one.sha256 for one in cache.entries()} == {kept, new}


def test_arrays_larger_than_the_limit_are_refused_with_the_variable_to_set(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="RAFFED_CACHE_GB"):
        ArrayCache(tmp_path, 1000).put(stored())


def test_what_is_missing_is_named_with_the_way_to_bring_it_back(cache: ArrayCache) -> None:
    sha256 = stored().sha256()
    with pytest.raises(
        DataFileError, match=rf"{sha256[:12]}… are not in the cache .*same command writes them"
    ):
        cache.get(sha256)
    with pytest.raises(UsageError, match="not a SHA-256"):
        cache.get("../../etc")


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("spoil", ["bit", "cut", "absent", "json"])
def test_a_damaged_entry_is_refused_and_says_how_to_replace_it(cache: ArrayCache, spoil: str) -> None:
    sha256 = cache.put(stored())
    folder = next(cache.folder.rglob(sha256))
    if spoil == "bit":
        _flip(folder / "x.npy")
    elif spoil == "cut":
        (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:500])
    elif spoil == "absent":
        (folder / "x.npy").unlink()
    else:
        (folder / "about.json").write_text("{")
    with pytest.raises(
        DataFileError, match=rf"is damaged .*raffed cache clear {sha256[:12]}|is damaged: its arrays"
    ):
        cache.get(sha256)
    assert cache.clear(sha256[:12])[0] == 1
    assert cache.put(stored()) == sha256
    cache.get(sha256)


def test_clearing_removes_all_entries_and_what_killed_writers_left(cache: ArrayCache) -> None:
    cache.put(stored())
    cache.put(stored(1))
    (cache.folder / "arrays" / ".new-left").mkdir()
    removed, freed = cache.clear()
    assert removed == 2
    assert freed > 2 * X.nbytes
    assert list((cache.folder / "arrays").iterdir()) == []


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
        ArrayCache(tmp_path / "file" / "cache", 10**9).put(stored())


def test_an_entry_that_another_process_removes_while_entries_are_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArrayCache(tmp_path, 30_000)
    gone = cache.put(stored())
    real, kept = Path.stat, Path.is_file

    def removed(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == gone:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", removed)  # after it was listed: there it is a complete entry still
    monkeypatch.setattr(Path, "is_file", lambda path: path.parent.name == gone or kept(path))
    second = cache.put(stored(1))  # the limit has room for two, so the eviction asks for their sizes
    assert second in [one.sha256 for one in cache.entries()]


def test_the_environment_names_folder_and_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path))
    monkeypatch.setenv("RAFFED_CACHE_GB", "1.5")
    assert cache_folder() == tmp_path
    assert limit_bytes() == 1_500_000_000
    monkeypatch.setenv("RAFFED_CACHE_GB", "plenty")
    with pytest.raises(UsageError, match="RAFFED_CACHE_GB = 'plenty'"):
        limit_bytes()
