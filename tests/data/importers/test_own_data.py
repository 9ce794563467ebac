"""Data of one's own in whole runs: table, image folder, arrays; resumed and verified from the cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

import raffed
from raffed.data.array_cache import ArrayCache
from raffed.data.dataset import Dataset
from raffed.data.own_data import checked_name, load_own, short_name
from raffed.data.preparation import Transform
from raffed.errors import DataFileError, UsageError
from raffed.own.gate import note_read
from raffed.results.runfile import read_run
from raffed.runs.verify import verify


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrayCache:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    return ArrayCache.of_user()


def config(dataset: str | Dataset, split: str = "iid:4", rounds: int = 5, **model: str) -> raffed.RunConfig:
    return raffed.RunConfig(
        data=raffed.Data(dataset=dataset, split=split),  # type: ignore[arg-type]
        model=raffed.Model(**model),
        local=raffed.Local(lr=0.1, batch_size=16),
        federation=raffed.Federation(rounds=rounds, eval_every=rounds),
        runtime=raffed.Runtime(execution="serial"),
    )


def test_a_table_of_scikit_learn_is_learnt_from_csv_with_its_sites(tmp_path: Path) -> None:
    frame = load_wine(as_frame=True).frame
    frame["site"] = np.where(np.arange(len(frame)) % 3 == 0, "north", "south")
    frame.to_csv(tmp_path / "table.csv", index=False)
    place = f"csv:{tmp_path / 'table.csv'}?label=target&client=site"
    result = raffed.run(config(place, "natural"), tmp_path / "run")
    assert result.accuracy > 0.8
    assert result.personalization > 0.8
    assert read_run(tmp_path / "run")["clients"] == 2
    assert checked_name("FMNIST") == "fashion-mnist"
    with pytest.raises(UsageError, match=r"did you mean csv:.*table\.csv"):
        checked_name(str(tmp_path / "table.csv"))
    names = {"csv:a/b/wine.csv?label=y": "csv-wine", "cache:0123456789abcdef": "arrays-01234567"}
    names |= {"digits": "digits", "mylab.data:load": "load"}
    assert {text: short_name(text) for text in names} == names


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "wine.csv"
    load_wine(as_frame=True).frame.to_csv(path, index=False)
    return path


def test_a_run_is_verified_from_cache_or_same_file(table: Path, tmp_path: Path, cache: ArrayCache) -> None:
    content = table.read_text()
    raffed.run(config(f"csv:{table}?label=target"), tmp_path / "run")
    sha256 = read_run(tmp_path / "run")["data_sha256"]
    assert [path.stem for path in cache.folder.rglob("*.npz")] == [sha256]
    table.unlink()
    assert verify(tmp_path / "run").ok
    shutil.rmtree(cache.folder)
    with pytest.raises(DataFileError, match=r"not in the cache .*wine\.csv is missing"):
        verify(tmp_path / "run")
    table.write_text(content.replace("14.23", "14.24"))
    with pytest.raises(DataFileError, match="has changed since the run"):
        verify(tmp_path / "run")
    table.write_text(content)
    assert verify(tmp_path / "run").ok


def test_a_stopped_run_of_arrays_resumes_to_the_same_bits(tmp_path: Path, cache: ArrayCache) -> None:
    x, y = load_wine(return_X_y=True)
    mine = Dataset.from_arrays((x - x.mean(0)) / x.std(0), y, test=0.2)
    whole = raffed.run(config(mine), tmp_path / "whole")
    raffed.run(config(mine), tmp_path / "part", stop=lambda: True)
    assert raffed.resume(tmp_path / "part").hashes == whole.hashes
    shutil.rmtree(cache.folder)
    raffed.run(config(mine), tmp_path / "other", stop=lambda: True)
    shutil.rmtree(cache.folder)
    with pytest.raises(DataFileError, match=r"are not in the cache .*the same command writes them"):
        raffed.resume(tmp_path / "other")


def test_a_data_set_comes_back_whole_from_the_cache(cache: ArrayCache) -> None:
    """What is told of a table beside its arrays is kept too, and does not change the hash."""
    x, y = np.arange(160, dtype=np.uint8).reshape(40, 1, 2, 2), np.arange(40) % 2
    owners = {"clients": np.arange(40) % 3, "test_clients": [0, 1, 2, -1]}
    ways = {
        "transform": Transform(mean=(0.5,), std=(0.25,), flip=True),
        "transforms": {"map": Transform(size=4)},
    }
    about = {"class_names": ("a", "b"), "name": "mine", "max_value": 200}
    first = Dataset(x, y, x[:4], [0, 1, 0, 1], **owners, **ways, **about)
    again = load_own(first.reference())[0]
    assert again.stored().sha256() == first.stored().sha256()
    assert (again.transform, again.transforms) == (first.transform, first.transforms)
    assert (again.name, again.max_value, again.class_names) == ("mine", 200, ("a", "b"))
    assert Dataset(x, y, class_names=("a", "b"), name="mine").reference() != first.reference()
    told = Dataset.from_table({"a": y + 0.5, "b": y, "y": y}, label="y", test=0.0)
    plain = Dataset(told.x, told.y, class_names=told.class_names)
    sha256 = cache.put(plain.stored())
    assert Dataset.restored(cache.get(sha256)).facts.columns == ()
    assert cache.put(told.stored()) == sha256
    assert Dataset.restored(cache.get(sha256)).facts == told.facts


@pytest.mark.parametrize("place", ["somebody/something", "folder"])
def test_a_run_never_downloads_because_its_folder_says_so(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The description of a folder may name addresses, and so may its rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    note_read({"data": {"dataset": f"hf:{place}"}})
    with pytest.raises(DataFileError, match="read only if you name them"):
        load_own(f"hf:{place}", "0" * 64)


def test_a_function_of_the_users_gives_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np, raffed\n"
        "def load():\n"
        "    return raffed.Dataset.from_arrays(np.eye(40), np.arange(40) % 2, test=0.2)\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    result = raffed.run(config("./mine.py:load", rounds=1), "run")
    assert result.state == "finished"
    (tmp_path / "mine.py").unlink()
    assert verify(tmp_path / "run").ok
    (tmp_path / "other.py").write_text("number = 3\n")
    with pytest.raises(UsageError, match=r"gives a int; it must be a raffed\.Dataset"):
        raffed.run(config("./other.py:number"), "other")
