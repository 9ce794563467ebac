"""Data sets of Hugging Face's library, from memory and from disk, and the split `power-law` beside the
packages that Flower's fedprox divides MNIST with; skipped where the library is not installed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data.importers.reference import import_flwr, import_hf
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError

hf = pytest.importorskip("datasets", reason="pip install 'raffed[hf]'")
WRITERS = ["w1", "w2"] * 4


@pytest.fixture
def images() -> hf.Dataset:
    pictures = [Image.fromarray(np.full((5, 4), value, np.uint8)) for value in range(8)]
    kinds = hf.Features(
        {"img": hf.Image(), "y": hf.ClassLabel(names=["cat", "dog"]), "writer": hf.Value("string")}
    )
    return hf.Dataset.from_dict({"img": pictures, "y": [0, 1] * 4, "writer": WRITERS}, features=kinds)


def test_images_classes_and_clients_are_those_of_the_columns(images: hf.Dataset) -> None:
    found = import_hf(images, label="y", client="writer", test=0.0)
    assert found.x[:, 0, 0, 0].tolist() == list(range(8))
    assert found.x.shape == (8, 1, 5, 4)
    assert found.class_names == ("cat", "dog")
    assert found.client_names == ("w1", "w2")


def test_partitions_are_the_clients_and_token_ids_are_columns_too(images: hf.Dataset) -> None:
    parts = [images.select(range(0, 3)), images.select(range(3, 8))]
    found = import_flwr(parts, label="y", test_data=images)
    assert found.clients.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert (len(found.y_test), found.test_clients) == (8, None)
    data = hf.Dataset.from_dict({"ids": [[1, 2], [3, 4]] * 4, "age": list(range(8)), "label": ["a", "b"] * 4})
    ids = import_hf(data, x="ids", test=0.0).x
    assert (ids.dtype, ids[1].tolist()) == (np.int64, [3, 4])
    assert import_hf(data, drop=("ids",), test=0.0).x.shape == (8, 1)


@pytest.mark.parametrize("order", [["cat", "dog"], ["dog", "cat"], ["bat", "dog", "cat"]])
def test_classes_and_clients_of_a_test_part_have_names(images: hf.Dataset, order: list[str]) -> None:
    """A part that was saved by itself may number the same names differently."""
    kinds = images.features.copy()
    kinds["y"] = hf.ClassLabel(names=order)
    kinds["writer"] = hf.ClassLabel(names=["w2", "w1"])
    columns = {"img": images["img"][:2], "y": ["dog", "cat"], "writer": ["w1", "w2"]}
    tests = hf.Dataset.from_dict(columns, features=kinds)
    data = images.cast_column("writer", hf.ClassLabel(names=["w1", "w2"]))
    found = import_hf(data, label="y", client="writer", test_data=tests)
    assert found.class_names == ("cat", "dog")
    assert found.y_test.tolist() == [1, 0]
    assert found.test_clients.tolist() == [0, 1]


def test_a_fault_is_refused_in_one_line_that_names_the_column(images: hf.Dataset, tmp_path: Path) -> None:
    ragged = hf.Dataset.from_dict({"ids": [[1], [2, 3]], "label": [0, 1]})
    kinds = images.features.copy()
    kinds["y"] = hf.ClassLabel(names=["bat", "cat"])
    bats = hf.Dataset.from_dict({**images[:1], "y": ["bat"]}, features=kinds)
    deep = [Image.fromarray(np.full((5, 4), value, np.uint16)) for value in (300, 60_000)]
    scans = hf.Dataset.from_dict({"img": deep, "y": [0, 1]}).cast_column("img", hf.Image())
    cases = [
        (lambda: import_hf(images, image="writer", label="y"), "column 'writer' holds"),
        (lambda: import_hf(images, label="y", test_data=bats), "its class 'bat' is not a class of"),
        (lambda: import_hf(scans, image="img", label="y", test=0.0), "row 0 has pixels of mode I;16"),
        (lambda: import_flwr([]), "there are no partitions"),
        (lambda: import_flwr([images, ragged]), "partition 1 has other columns"),
    ]
    for call, words in cases:
        with pytest.raises(UsageError, match=words) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("clients", "each", "sigma", "seed", "mu"), [(1000, 2, 2.0, 42, 2.0), (30, 3, 1.0, 7, 0.0)]
)
def test_the_lists_are_those_of_flwr_datasets_and_of_train_test_split(
    clients: int, each: int, sigma: float, seed: int, mu: float, tmp_path: Path
) -> None:
    """The steps of baselines/fedprox/fedprox/dataset.py (adap/flower fdef7af), with made-up labels."""
    flower = pytest.importorskip("flwr_datasets")
    hf = pytest.importorskip("datasets")
    labels = np.random.default_rng(1).choice(10, 60_000, p=np.arange(15, 25) / 195)
    hf.Dataset.from_dict({"label": labels, "row": np.arange(60_000)}).to_parquet(tmp_path / "train.parquet")
    shares = np.random.default_rng(seed).lognormal(mu, sigma, clients * each).reshape((10, -1))
    divider = flower.partitioner.DistributionPartitioner(
        distribution_array=shares,
        num_partitions=clients,
        num_unique_labels_per_partition=each,
        partition_by="label",
        preassigned_num_samples_per_label=5,
        seed=seed,
    )
    data = flower.FederatedDataset(
        dataset="parquet",
        data_files={"train": str(tmp_path / "train.parquet")},
        cache_dir=str(tmp_path),
        partitioners={"train": divider},
        seed=seed,
    )
    split = parse_split(f"power-law:{clients}:{each}:{sigma}:5:flower:{seed}")
    ours = make_partition(split, labels, 10, None, 77, 0.1)
    whole = make_partition(split, labels, 10, None, 77, 0.0)
    for client in range(0, clients, clients // 10):
        part = data.load_partition(client)
        cut = part.train_test_split(test_size=0.1, seed=seed)
        np.testing.assert_array_equal(whole.train[client], part["row"])
        np.testing.assert_array_equal(ours.train[client], cut["train"]["row"])
        np.testing.assert_array_equal(ours.test[client], cut["test"]["row"])
