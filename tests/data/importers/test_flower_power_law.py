"""The split `power-law` beside the packages that Flower's fedprox divides MNIST with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raffed.data.partition import make_partition
from raffed.data.splits import parse_split


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
