"""Data of one's own, whatever type or layout: the cache that stores arrays by content, and whole runs (table,
image folder, arrays), resumed and verified from it.
"""

from __future__ import annotations

import shutil
import stat
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

import raffed
from raffed.data.array_cache import ArrayCache, StoredArrays
from raffed.data.dataset import Dataset
from raffed.data.own_data import checked_name, load_own, short_name
from raffed.data.preparation import Transform
from raffed.errors import DataFileError, UsageError
from raffed.own.gate import note_read
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from raffed.runs.verify import verify
from raffed.search.folder import SweepFolder
from raffed.search.request import Request
from raffed.search.space import check_trials

X = np.arange(6 * 1 * 8 * 5, dtype=np.uint8).reshape(6, 1, 8, 5)
Y = np.array([0, 1, 2, 0, 1, 2])


def made(x: Any = X, y: Any = Y, **more: Any) -> Dataset:
    return Dataset(x, y, **{"x_test": X[:2], "y_test": Y[:2], "name": "mine", "num_classes": 3, **more})


@pytest.mark.parametrize("y", [Y.astype("uint16"), Y.astype(">i4"), Y.tolist(), torch.from_numpy(Y)])
def test_labels_of_any_type_of_integers_are_the_same_labels(y: Any) -> None:
    found = made(y=y).y
    assert found.dtype == np.int64
    assert found.tolist() == Y.tolist()
    assert made(y=Y == 1).y.tolist() == [0, 1, 0, 0, 1, 0]


def test_images_that_do_not_lie_in_one_piece_or_lack_a_channel_are_the_same_images() -> None:
    turned = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for same in (turned, np.repeat(X, 2, 0)[::2], X[:, 0], np.ma.masked_equal(X, 255)):
        assert np.array_equal(made(x=same).x, X)
    none = made(x_test=None, y_test=None)
    assert (none.y_test.dtype, none.x_test.shape) == (np.int64, (0, 1, 8, 5))
    again = replace(none)
    assert again.x is none.x, "what is right is not copied"
    with pytest.raises(UsageError, match="y has 5 entries, but there are 6 samples"):
        replace(none, y=Y[:5])


TABLE = np.linspace(-1, 1, 18).reshape(6, 3)


def test_the_number_of_classes_is_that_of_the_names_or_else_of_the_labels() -> None:
    assert Dataset(TABLE, Y).num_classes == 3
    assert Dataset(TABLE, Y, TABLE, Y + 2).num_classes == 5
    assert Dataset(TABLE, Y, class_names=tuple("abcd")).num_classes == 4
    with pytest.raises(UsageError, match="the data set: y goes from 0 to 2, but must stay within 0 to 1"):
        Dataset(TABLE, Y, class_names=("a", "b"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "labels from 1": ({"y": Y + 1}, "y goes from 1 to 3, but must stay within 0 to 2"),
    "a test label out of range": ({"y_test": [0, 3]}, "y_test goes from 0 to 3"),
    "test samples without labels": ({"y_test": None}, "x_test and y_test belong together"),
    "test images of another size": (
        {"x_test": X[:2, :, :4]},
        r"x_test has samples of shape \(1, 4, 5\), the training part \(1, 8, 5\)",
    ),
    "pixels above the one that means 1": ({"max_value": 16}, "goes up to 239, but max_value"),
    "test clients below none": ({"test_clients": [-2, 0]}, "from -2 to 0, but must stay within -1 to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_in_one_line_that_names_the_array(case: str) -> None:
    change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        made(**change)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("mine: ")


WHOLE = np.arange(3000, dtype=np.float32).reshape(100, 30)


def stored(shift: int = 0, name: str = "mine") -> StoredArrays:
    arrays = {"x": WHOLE + shift, "y": np.arange(100)}
    return StoredArrays(arrays, {"class_names": ("a", "b")}, name, "npz:a.npz")


def test_what_was_put_in_comes_out_read_only_and_is_stored_once_without_pickles(cache: ArrayCache) -> None:
    threads = [threading.Thread(target=lambda: cache.put(stored())) for _ in range(8)]
    sha256 = cache.put(stored())
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (file,) = (path for path in cache.folder.rglob("*") if path.is_file())
    assert file == cache.file_of(sha256)
    with np.load(file, allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays.files} == {"x": "f", "y": "i", "about": "U"}
    found = cache.get(sha256)
    assert np.array_equal(found.arrays["x"], WHOLE)
    assert (found.words, found.name, found.source) == ({"class_names": ("a", "b")}, "mine", "npz:a.npz")
    assert type(found.arrays["x"]) is np.ndarray
    assert not found.arrays["x"].flags.writeable


def test_only_the_owner_may_enter_the_cache_and_what_is_missing_is_named_with_the_way_to_bring_it_back(
    cache: ArrayCache,
) -> None:
    sha256 = stored().sha256()
    with pytest.raises(
        DataFileError, match=rf"{sha256[:12]}… are not in the cache .*same command writes them"
    ):
        cache.get(sha256)
    with pytest.raises(UsageError, match="not a SHA-256"):
        cache.get("../../etc")
    cache.folder.mkdir(mode=0o755)
    cache.put(stored())
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_the_hash_is_that_of_types_shapes_bytes_and_class_names_and_of_nothing_else() -> None:
    first = stored()
    same = [
        stored(name="other"),
        replace(first, arrays={"y": np.arange(100), "x": np.asfortranarray(WHOLE)}),
        replace(first, arrays={**first.arrays, "x": WHOLE.astype(">f4")}),
    ]
    other = [
        stored(1),
        replace(first, arrays={**first.arrays, "x": WHOLE.astype("f8")}),
        replace(first, arrays={**first.arrays, "x": WHOLE.reshape(30, 100)}),
        replace(first, arrays={"x_test": WHOLE, "y": first.arrays["y"]}),
        replace(first, words={"class_names": ("b", "a")}),
    ]
    assert {one.sha256() for one in same} == {first.sha256()}
    assert len({one.sha256() for one in [first, *other]}) == 6


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
        np.savez(file, x=WHOLE)
    else:
        file.write_bytes(cache.file_of(cache.put(stored(1))).read_bytes())
    with pytest.raises(DataFileError, match=rf"{sha256}\.npz is damaged; remove it"):
        cache.get(sha256)
    file.unlink()
    assert cache.put(stored()) == sha256
    cache.get(sha256)


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


def changed(table: Path) -> None:
    table.write_text(table.read_text().replace("14.23", "14.24"))


def test_no_run_begins_beside_runs_of_data_that_have_changed(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a trial of a sweep that goes on, nor a further seed, nor a cell of a table: their accuracies
    could not be compared."""
    monkeypatch.setattr("raffed.api.many_runs.in_processes", lambda runs: False)
    base = config(f"csv:{table}?label=target", rounds=1).changed({"data.validation": 0.2})
    out = tmp_path / "seeds"
    first = raffed.compare("fedavg", base, out=out, seeds=1, progress=False).seeds["fedavg"]
    request = Request(base, ("fedprox",), grid={"mu": [0.1, 1.0]})
    sweep = SweepFolder(tmp_path / "sweep", request, resume=False)
    raffed.run(request.config("fedprox", {"mu": 0.1}), sweep.trial("fedprox", {"mu": 0.1}))
    check_trials(sweep.path, accept=False)
    item = raffed.table("wine", "Wine", {("FedAvg", "wine"): base})
    serial, tables = raffed.Runtime(execution="serial"), tmp_path / "tables"
    reproduce = partial(raffed.reproduce, item, "full", out=tables, runtime=serial, progress=False)
    cells = reproduce(seeds=1).tables
    changed(table)
    with pytest.raises(DataFileError, match=r"wine\.csv.* has changed since the run"):
        check_trials(sweep.path, accept=False)
    with pytest.raises(DataFileError, match=r"wine\.csv.* has changed since the run"):
        raffed.compare("fedavg", base, out=out, seeds=2, progress=False)
    with pytest.raises(DataFileError, match=r"wine\.csv.* has changed since the run"):
        reproduce(seeds=2)
    table.unlink()
    kept = raffed.compare("fedavg", base, out=out, seeds=1, progress=False).seeds["fedavg"]
    assert kept.accuracy.mean == first.accuracy.mean, "where nothing begins, no data are needed"
    assert all(frame.equals(cells[title]) for title, frame in reproduce(seeds=1).tables.items())


def test_the_model_of_a_client_is_made_from_the_data_of_its_run(
    table: Path, tmp_path: Path, cache: ArrayCache
) -> None:
    """One step of Per-FedAvg on the client's samples makes it."""
    asked = config(f"csv:{table}?label=target", rounds=1).changed({"method": "perfedavg"})
    raffed.run(asked, tmp_path / "run")
    before = raffed.load_model(tmp_path / "run", client=1).state_dict()
    changed(table)
    after = raffed.load_model(tmp_path / "run", client=1).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    shutil.rmtree(cache.folder)
    with pytest.raises(DataFileError, match="has changed since the run"):
        raffed.load_model(tmp_path / "run", client=1)


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


NAMED = """
import numpy as np, raffed
def made(name):
    return raffed.Dataset.from_arrays(np.eye(40), np.arange(40) % 2, test=0.2, name=name)
def first() -> raffed.Dataset: return made("first")
def second() -> raffed.Dataset: return made("second")
"""


@pytest.mark.parametrize("kind", ["function", "arrays"])
def test_a_run_keeps_the_name_of_its_data_whoever_stored_the_same_arrays(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays lie in the cache once, under their newest name."""
    monkeypatch.chdir(tmp_path)
    Path("named.py").write_text(NAMED)
    for name in ("first", "second"):
        made = Dataset.from_arrays(np.eye(40), np.arange(40) % 2, test=0.2, name=name)
        given = made if kind == "arrays" else f"./named.py:{name}"
        raffed.run(config(given, rounds=1), name)
        raffed.run(config(given, rounds=2), f"{name} resumed", stop=lambda: True)
    for name in ("first", "second"):
        assert read_metrics(tmp_path / name)["dataset"].unique().to_pylist() == [name]
        assert verify(tmp_path / name).ok
        raffed.resume(f"{name} resumed")
        assert read_metrics(tmp_path / f"{name} resumed")["dataset"].unique().to_pylist() == [name]
