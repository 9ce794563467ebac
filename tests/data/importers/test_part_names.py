"""The names of a data set's parts, as people write them, in folders, files, tables and libraries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data.array_cache import ArrayCache
from raffed.data.dataset import Dataset
from raffed.data.importers.arrays import array_names, import_npz
from raffed.data.importers.images import import_folder
from raffed.data.importers.pfllib import import_pfllib
from raffed.data.importers.tables import import_table
from raffed.data.importers.values import part_named
from raffed.errors import DataFileError, UnknownNameError, UsageError

X = np.arange(24, dtype=np.float32).reshape(12, 2)
Y = np.arange(12) % 2


@pytest.mark.parametrize(
    ("part", "names"),
    {
        "train": "train Train TRAINING training_set trainset train-images train2017 seg_train train_data",
        "test": "test Test testing TestSet test_images tst",
        "validation": "val Valid validation VALIDATION_SET dev eval val2017 valid-set",
    }.items(),
)
def test_a_part_is_known_in_any_spelling(part: str, names: str) -> None:
    assert {name: part_named(name) for name in names.split()} == dict.fromkeys(names.split(), part)


def test_other_names_mean_no_part() -> None:
    others = (
        "cat",
        "trainer",
        "train station",
        "test1",
        "latest",
        "valley",
        "device",
        "alice",
        "x_test_2",
        "",
    )
    assert [name for name in others if part_named(name) is not None] == []


def folder(root: Path, *images: str) -> Path:
    """Make a folder of images; the value of each image is its place in the list."""
    for value, name in enumerate(images):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((3, 3), value, np.uint8)).save(root / name)
    return root


def of_parts(*parts: str) -> list[str]:
    return [f"{part}/{label}/{file}.png" for part in parts for label in ("cat", "dog") for file in "ab"]


@pytest.mark.parametrize(
    ("train", "test"), [("Training", "Testing"), ("trainset", "TEST"), ("train", "test"), ("Train", "valid")]
)
def test_images_of_the_test_folder_are_the_test_set_in_any_spelling(
    tmp_path: Path, train: str, test: str
) -> None:
    found = import_folder(folder(tmp_path, *of_parts(train, test)))
    assert found.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert found.x_test[:, 0, 0, 0].tolist() == [4, 5, 6, 7]
    assert found.clients is None
    assert found.class_names == ("cat", "dog")


def test_validation_images_alone_are_the_test_set_and_a_note_says_so(tmp_path: Path) -> None:
    found = import_folder(folder(tmp_path, *of_parts("train", "val")))
    assert len(found.x_test) == 4
    assert "'val' is the test set (there is no part for tests)" in found.facts.notes[0]


def test_validation_images_beside_test_images_are_not_used_and_a_note_says_how_many(tmp_path: Path) -> None:
    found = import_folder(folder(tmp_path, *of_parts("train", "validation", "test")))
    assert found.x[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert found.x_test[:, 0, 0, 0].tolist() == [8, 9, 10, 11]
    assert "not used: validation (4); 'train' is trained on" in found.facts.notes[0]


def test_train_and_test_in_their_plain_names_need_no_note(tmp_path: Path) -> None:
    assert import_folder(folder(tmp_path, *of_parts("train", "test"))).facts.notes == ()


def test_a_training_folder_alone_is_no_client(tmp_path: Path) -> None:
    found = import_folder(folder(tmp_path, *of_parts("train")))
    assert found.clients is None
    assert len(found.x_test) == 2


def test_a_part_within_a_folder_of_its_name_is_that_part(tmp_path: Path) -> None:
    found = import_folder(folder(tmp_path, *of_parts("seg_train/seg_train", "seg_test/seg_test")))
    assert (len(found.x), len(found.x_test)) == (4, 4)
    assert found.clients is None


def test_what_operating_systems_add_is_not_a_part(tmp_path: Path) -> None:
    folder(tmp_path, *of_parts("train", "test"))
    (tmp_path / "__MACOSX" / "train").mkdir(parents=True)
    (tmp_path / "__MACOSX" / "train" / "._a.png").write_bytes(b"x")
    assert len(import_folder(tmp_path).x_test) == 4


def test_clients_and_classes_may_have_names_that_parts_have(tmp_path: Path) -> None:
    people = import_folder(folder(tmp_path / "people", *of_parts("Dev", "Val")), test=0.0)
    assert people.client_names == ("Dev", "Val")
    vehicles = import_folder(folder(tmp_path / "vehicles", "bus/a.png", "train/a.png"), test=0.0)
    assert vehicles.class_names == ("bus", "train")


AMBIGUOUS = {
    "two test folders": (
        of_parts("train", "Test", "testing"),
        "'Test' and 'testing' both mean the test part",
    ),
    "no training folder": (of_parts("val", "test"), "holds 'test' and 'val', and no folder for training"),
    "a client beside them": (of_parts("train", "test", "alice"), "'alice' beside it is not"),
    "parts in clients": (
        [f"alice/{part}/{name}.png" for part in ("train", "test") for name in "ab"],
        "named test and train, so these would be the classes",
    ),
    "images without classes": (["train/a.png", "test/a.png"], "named test and train, so these would be the"),
    "parts one level down": (of_parts("data/alice/train"), "lies too deep"),
    "the whole one level down": (
        [f"x-ray/{name}" for name in of_parts("train/alice", "test/alice")],
        "x-ray holds test and train: the parts must be outermost, as in folder:",
    ),
    "classes and clients": (["train/cat/a.png", "test/alice/cat/a.png"], "lie at different depths"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_is_ambiguous_is_refused_with_the_names_of_the_folders(tmp_path: Path, case: str) -> None:
    images, words = AMBIGUOUS[case]
    with pytest.raises(UsageError, match=words) as error:
        import_folder(folder(tmp_path, *images))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "names",
    [
        ("X_train", "y_train", "X_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
        ("data", "target", "test_data", "test_target"),
        ("xtrain", "ytrain", "xtest", "ytest"),
        ("trainX", "trainY", "testX", "testY"),
        ("X", "labels", "X_val", "labels_val"),
    ],
)
def test_arrays_are_known_by_the_usual_names_of_their_parts(tmp_path: Path, names: tuple[str, ...]) -> None:
    np.savez(tmp_path / "a.npz", **dict(zip(names, (X, Y, X[:4] + 100, Y[:4]), strict=True)))
    found = import_npz(tmp_path / "a.npz")
    assert np.array_equal(found.x, X)
    assert np.array_equal(found.x_test, X[:4] + 100)
    assert found.y_test.tolist() == Y[:4].tolist()


def test_arrays_of_medmnist_have_labels_in_a_column_and_a_validation_part_that_is_not_used(
    tmp_path: Path,
) -> None:
    parts = {"train": X, "val": X[:6], "test": X[:4]}
    made = {f"{part}_images": x for part, x in parts.items()}
    made |= {f"{part}_labels": Y[: len(x), None] for part, x in parts.items()}
    np.savez(tmp_path / "a.npz", **made)
    found = import_npz(tmp_path / "a.npz")
    assert (len(found.x), len(found.x_test)) == (12, 4)
    assert found.y.tolist() == Y.tolist()
    assert found.facts.notes == (f"{tmp_path / 'a.npz'}: not used: val_images, val_labels",)


def test_the_validation_arrays_are_the_test_set_where_there_is_no_other() -> None:
    roles, notes = array_names("a.npz", ["x", "y", "x_val", "y_val", "mean"], {})
    assert roles["x_test"] == "x_val"
    assert notes == (
        "a.npz: x_val is the test set (there is no array for tests)",
        "a.npz: not used: mean",
    )


def test_an_npz_file_of_unknown_names_says_how_to_name_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=X, second=Y)
    with pytest.raises(DataFileError, match=r"holds first, second; .*a\.npz\?x=NAME&y=NAME"):
        import_npz(tmp_path / "a.npz")


def test_a_column_that_names_the_parts_divides_a_table() -> None:
    parts = np.array(["train"] * 6 + ["test"] * 4 + ["val"] * 2)
    table = {"age": X[:, 0], "split": parts, "y": Y}
    found = import_table(table, label="y")
    assert found.x.shape == (6, 1)
    assert found.x_test.shape == (4, 1)
    assert found.x.mean() == pytest.approx(0.0, abs=1e-6)  # statistics of the training rows alone
    assert "'train' is trained on and 'test' is the test set" in found.facts.notes[0]
    assert "not used: val (2)" in found.facts.notes[1]
    assert import_table(table, label="y", drop=("split",), test=0.0).x.shape == (12, 1)
    assert import_table(table, label="y", features=("age", "split"), test=0.0).x.shape == (12, 4)


def test_an_unused_folder_of_pfllib_is_named(tmp_path: Path) -> None:
    for part in ("train", "test", "val"):
        (tmp_path / part).mkdir()
        np.savez_compressed(tmp_path / part / "0.npz", data=np.array({"x": X, "y": Y}, dtype=object))
    (tmp_path / "config.json").write_text(json.dumps({"num_clients": 1}))
    assert import_pfllib(tmp_path).facts.notes == (f"{tmp_path}: not used: val",)


def test_parts_of_hugging_face_are_known_in_any_spelling(tmp_path: Path) -> None:
    hf = pytest.importorskip("datasets", reason="pip install 'raffed[hf]'")
    from raffed.data.importers.reference import import_hf_place

    part = hf.Dataset.from_dict({"ids": [[1, 2], [3, 4]] * 4, "label": ["a", "b"] * 4})
    hf.DatasetDict({"training": part, "validation": part.select(range(6))}).save_to_disk(
        str(tmp_path / "two")
    )
    found = import_hf_place(str(tmp_path / "two"), x="ids")
    assert (len(found.x), len(found.x_test)) == (8, 6)
    assert found.facts.notes == (
        f"{tmp_path / 'two'}: 'validation' is the test set (there is no part for tests)",
    )
    every = {"train": part, "validation": part, "test": part.select(range(4))}
    hf.DatasetDict(every).save_to_disk(str(tmp_path / "three"))
    found = import_hf_place(str(tmp_path / "three"), x="ids")
    assert len(found.x_test) == 4
    assert "not used: validation (8)" in found.facts.notes[0]
    with pytest.raises(UnknownNameError, match=r"unknown split of .*'tets'"):
        import_hf_place(str(tmp_path / "three"), x="ids", test_split="tets")
    hf.DatasetDict({"train": part, "Testing": part, "tst": part}).save_to_disk(str(tmp_path / "twice"))
    with pytest.raises(UsageError, match="both mean the test part"):
        import_hf_place(str(tmp_path / "twice"), x="ids")


def test_what_was_found_is_kept_in_the_cache_and_does_not_change_the_hash(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path / "cache")
    plain = Dataset.from_arrays(X, Y)
    told = Dataset.from_table({"a": X[:, 0], "b": X[:, 1], "y": Y}, label="y", test=0.0)
    assert Dataset.restored(cache.get(cache.put(told.stored()))).facts == told.facts
    assert [one.name for one in told.facts.columns] == ["a", "b"]
    again = Dataset(told.x, told.y, class_names=told.class_names, facts=plain.facts)
    assert again.stored().sha256() == told.stored().sha256()


def test_an_entry_that_knew_nothing_learns_what_is_found_later(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path / "cache")
    told = Dataset.from_table({"a": X[:, 0], "b": X[:, 1], "y": Y}, label="y", test=0.0)
    sha256 = cache.put(Dataset(told.x, told.y, class_names=told.class_names).stored())
    assert Dataset.restored(cache.get(sha256)).facts.columns == ()
    assert cache.put(told.stored()) == sha256
    assert Dataset.restored(cache.get(sha256)).facts == told.facts
