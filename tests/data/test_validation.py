"""The validation part: training data of a client that it does not train on, so that nothing is chosen on
test data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data
from raffed.data.datasets import load_dataset
from raffed.data.partition import held_out, make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run


@pytest.fixture(scope="module")
def whole() -> Partition:
    data = load_dataset("digits")
    return make_partition(parse_split("p10c2"), data.y, 10, None, seed=3, local_test=0.2)


def test_every_client_gives_a_share_of_its_training_samples_and_of_nothing_else(whole: Partition) -> None:
    divided = held_out(whole, 0.25, seed=3)
    assert divided.num_clients == 10
    for client in range(10):
        before = whole.train[client]
        assert len(divided.val[client]) == len(before) // 4
        assert np.array_equal(
            np.sort(np.concatenate([divided.train[client], divided.val[client]])), np.sort(before)
        )
        assert divided.test[client] is whole.test[client]


def test_the_samples_that_stay_keep_their_order(whole: Partition) -> None:
    """The order decides the batches; what leaves must not move the others."""
    divided = held_out(whole, 0.25, seed=3)
    for before, after in zip(whole.train, divided.train, strict=True):
        assert after.tolist() == [index for index in before.tolist() if index in set(after.tolist())]


def test_the_seed_decides_which_and_another_seed_chooses_others(whole: Partition) -> None:
    assert (
        held_out(whole, 0.25, 3).sha256()
        == held_out(whole, 0.25, 3).sha256()
        != held_out(whole, 0.25, 4).sha256()
    )


def test_a_share_of_zero_changes_no_bit_of_a_partition_or_of_an_identity(whole: Partition) -> None:
    """The hash is the one that a default FedMR run had before validation parts existed."""
    assert held_out(whole, 0.0, 3) is whole
    assert (
        RunConfig(method="fedmr").identity()
        == "0ed7dbb099793a1975d878b06f36a2d9f7c0b046cab411a2b705683c3ed4e811"
    )
    assert (
        RunConfig(method="fedmr", data=Data(validation=0.1)).identity()
        != RunConfig(method="fedmr").identity()
    )


def test_a_client_with_one_sample_keeps_it_and_one_with_two_gives_one() -> None:
    made = held_out(Partition((np.array([4]), np.array([1, 2])), (np.array([], np.int64),) * 2, 10), 0.5, 0)
    assert [len(own) for own in made.train] == [1, 1]
    assert [len(own) for own in made.val] == [0, 1]


def test_a_file_brings_its_validation_parts_along(whole: Partition, tmp_path: Path) -> None:
    divided = held_out(whole, 0.25, seed=3)
    divided.save(tmp_path / "partition.npz")
    again = Partition.load(tmp_path / "partition.npz", pool_size=1442)
    assert again.sha256() == divided.sha256()
    assert [own.tolist() for own in again.val] == [own.tolist() for own in divided.val]
    assert held_out(again, 0.5, 9) is again
    assert again.recipe["validation"] == 0.25


def test_a_file_without_validation_parts_does_not_mention_them(whole: Partition, tmp_path: Path) -> None:
    whole.save(tmp_path / "partition.npz")
    with np.load(tmp_path / "partition.npz") as stored:
        assert not any(name.startswith("val") for name in stored.files)
    assert Partition.load(tmp_path / "partition.npz").val == ()


def test_a_validation_sample_that_is_trained_on_is_refused(whole: Partition, tmp_path: Path) -> None:
    Partition(whole.train, whole.test, 10, {}, val=whole.train).save(tmp_path / "double.npz")
    with pytest.raises(UsageError, match="a sample is listed twice"):
        Partition.load(tmp_path / "double.npz")


def test_a_share_above_nine_tenths_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"data\.validation = 0\.95 is outside"):
        RunConfig(data=Data(validation=0.95))


def test_where_no_client_can_hold_a_sample_out_the_run_is_refused() -> None:
    """1,442 samples, one each: a validation set of nothing would have no accuracy."""
    with pytest.raises(UsageError, match=r"data\.validation = 0\.2: no client has two training samples"):
        prepare_run(RunConfig(data=Data("digits", "iid:1442", validation=0.2)))


def test_data_that_come_in_stages_have_no_validation_part() -> None:
    with pytest.raises(UsageError, match=r"data\.validation = 0\.2: clients whose data come in stages"):
        prepare_run(
            RunConfig(
                data=Data("digits", "stages:4:2:2:if2", validation=0.2), federation=Federation(rounds=2)
            )
        )
