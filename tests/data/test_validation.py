"""What is held out: validation parts of clients, samples of the server, test parts of a joined pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data
from raffed.data.dataset import Dataset, joined
from raffed.data.datasets import load_dataset
from raffed.data.partition import draw_server_holdout, held_out, make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run


@pytest.fixture(scope="module")
def whole() -> Partition:
    data = load_dataset("digits")
    return make_partition(parse_split("p10c2"), data.y, 10, None, seed=3, local_test=0.2)


def test_every_client_gives_a_share_and_the_others_keep_their_order(whole: Partition) -> None:
    """The order decides the batches; what leaves must not move the others."""
    divided = held_out(whole, 0.25, seed=3)
    assert divided.num_clients == 10
    for client, before in enumerate(whole.train):
        assert len(divided.val[client]) == len(before) // 4
        left = set(divided.val[client].tolist())
        assert len(left) == len(before) // 4
        assert divided.train[client].tolist() == [one for one in before.tolist() if one not in left]
        assert divided.test[client] is whole.test[client]
    assert divided.sha256() == held_out(whole, 0.25, 3).sha256() != held_out(whole, 0.25, 4).sha256()


def test_a_share_of_zero_changes_no_bit(whole: Partition, tmp_path: Path) -> None:
    """The hash is the one that a default FedMR run had before validation parts existed."""
    assert held_out(whole, 0.0, 3) is whole
    identity = "0ed7dbb099793a1975d878b06f36a2d9f7c0b046cab411a2b705683c3ed4e811"
    assert RunConfig(method="fedmr").identity() == identity
    assert RunConfig(method="fedmr", data=Data(validation=0.1)).identity() != identity
    whole.save(tmp_path / "partition.npz")
    with np.load(tmp_path / "partition.npz") as stored:
        assert not any(name.startswith("val") for name in stored.files)
    assert Partition.load(tmp_path / "partition.npz").val == ()


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
    Partition(whole.train, whole.test, 10, {}, val=whole.train).save(tmp_path / "double.npz")
    with pytest.raises(UsageError, match="a sample is listed twice"):
        Partition.load(tmp_path / "double.npz")


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("iid:1442", "no client has two training samples"),  # a set of nothing would have no accuracy
        ("stages:4:2:2:if2", "clients whose data come in stages"),
    ],
)
def test_where_nothing_can_be_held_out_the_run_is_refused(split: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"data\.validation = 0\.2: {said}"):
        prepare_run(RunConfig(data=Data("digits", split, validation=0.2), federation=Federation(rounds=2)))


def tiny(**more: object) -> Dataset:
    x = np.arange(6, dtype=np.float32)[:, None]
    return Dataset(x[:4], [0, 1, 0, 1], x[4:], [1, 0], name="tiny", **more)  # type: ignore[arg-type]


def test_the_samples_of_the_test_part_follow_those_of_the_training_part() -> None:
    """Natural clients are kept only if the owner of every test sample is known."""
    pool = joined(tiny(clients=[0, 0, 1, 1], test_clients=[1, 0]))
    assert pool.x[:, 0].tolist() == list(range(6))
    assert pool.y.tolist() == [0, 1, 0, 1, 1, 0]
    assert len(pool.x_test) == len(pool.y_test) == 0
    assert pool.clients.tolist() == [0, 0, 1, 1, 1, 0]
    for more in ({"test_clients": [1, -1]}, {}):
        assert joined(tiny(clients=[0, 0, 1, 1], **more)).clients is None
    with pytest.raises(UsageError, match="tiny has no test set that could be joined; use train"):
        joined(pool)


def configured(**data: object) -> RunConfig:
    return RunConfig(data=replace(Data(), **data), federation=Federation(rounds=1))  # type: ignore[arg-type]


def test_clients_divide_all_samples_and_the_global_model_is_scored_on_their_test_parts() -> None:
    setup = prepare_run(configured(split="class-groups:10:2", pool="joined"))
    everything = np.concatenate([*setup.partition.train, *setup.partition.test])
    np.testing.assert_array_equal(np.sort(everything), np.arange(1797))
    images, labels = setup.data.test_set()
    assert len(images) == len(labels) == sum(map(len, setup.partition.test))
    assert len(labels) / 1797 == pytest.approx(0.25, abs=10 / 1797)  # rounded up in each of ten clients


def test_a_common_test_part_is_exactly_what_the_global_model_is_scored_on() -> None:
    setup = prepare_run(configured(split="capped-dirichlet:5:0.5:10:pfllib:0.25:1", pool="joined"))
    order = np.random.RandomState(1).permutation(1797)  # as train_test_split
    np.testing.assert_array_equal(setup.data.scored_rows["test"][1], order[:450])
    np.testing.assert_array_equal(np.sort(np.concatenate(setup.partition.train)), np.sort(order[450:]))


def test_a_joined_pool_counts_its_samples_in_the_identity_and_needs_local_test_parts() -> None:
    more = {"split": "iid:10", "local_test": 0.2, "samples": 1700}
    with pytest.raises(UsageError, match="has only 1442 training samples"):
        prepare_run(configured(**more))
    assert len(prepare_run(configured(**more, pool="joined")).dataset.y) == 1700
    with pytest.raises(UsageError, match=r"set data\.local_test above 0"):
        prepare_run(configured(split="label-count:10:2", pool="joined"))
    usual = RunConfig(federation=Federation(rounds=1)).identity()
    assert configured(pool="train").identity() == usual != configured(pool="joined").identity()


def test_the_server_s_samples_are_drawn_from_the_seed_and_no_class_is_taken_whole() -> None:
    pool = np.repeat([0, 1, 2], 3)
    taken = draw_server_holdout(pool, 3, 2, seed=5)
    assert np.bincount(pool[taken]).tolist() == [2, 2, 2]
    assert taken.tolist() == sorted(set(taken.tolist())) == draw_server_holdout(pool, 3, 2, seed=5).tolist()
    with pytest.raises(UsageError, match="needs 3 samples of class 0, but there are only 3"):
        draw_server_holdout(pool, 3, 3, seed=5)
    assert draw_server_holdout(pool, 4, 0, seed=0).tolist() == [], (
        "class 3 has no sample, but none is asked for"
    )
    with pytest.raises(UsageError, match="class 3, but there are only 0"):
        draw_server_holdout(pool, 4, 1, seed=0)
