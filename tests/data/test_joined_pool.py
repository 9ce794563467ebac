"""A pool joined from a data set's training and test part, which is divided anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raffed import Data, Federation, RunConfig
from raffed.data.dataset import Dataset, joined
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run


def tiny(**more: object) -> Dataset:
    x = np.arange(6, dtype=np.float32)[:, None]
    return Dataset(x[:4], [0, 1, 0, 1], x[4:], [1, 0], name="tiny", **more)  # type: ignore[arg-type]


def test_the_samples_of_the_test_part_follow_those_of_the_training_part() -> None:
    pool = joined(tiny())
    np.testing.assert_array_equal(pool.x[:, 0], np.arange(6))
    np.testing.assert_array_equal(pool.y, [0, 1, 0, 1, 1, 0])
    assert len(pool.x_test) == len(pool.y_test) == 0
    assert (pool.name, pool.num_classes) == ("tiny", 2)


def test_natural_clients_are_kept_only_if_the_owner_of_every_test_sample_is_known() -> None:
    known = joined(tiny(clients=[0, 0, 1, 1], test_clients=[1, 0])).clients
    assert known is not None
    np.testing.assert_array_equal(known, [0, 0, 1, 1, 1, 0])
    assert joined(tiny(clients=[0, 0, 1, 1], test_clients=[1, -1])).clients is None
    assert joined(tiny(clients=[0, 0, 1, 1])).clients is None


def test_data_without_a_test_set_are_refused() -> None:
    with pytest.raises(UsageError, match="tiny has no test set that could be joined; use train"):
        joined(joined(tiny()))


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


def test_a_joined_pool_without_local_test_parts_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"set data\.local_test above 0"):
        prepare_run(configured(split="label-count:10:2", pool="joined"))


def test_the_number_of_samples_to_choose_from_is_that_of_the_joined_pool() -> None:
    more = {"split": "iid:10", "local_test": 0.2, "samples": 1700}
    with pytest.raises(UsageError, match="has only 1442 training samples"):
        prepare_run(configured(**more))
    assert len(prepare_run(configured(**more, pool="joined")).dataset.y) == 1700


def test_the_pool_is_a_part_of_the_identity_and_the_usual_one_is_not_written() -> None:
    assert configured(pool="train").identity() == RunConfig(federation=Federation(rounds=1)).identity()
    assert configured(pool="joined").identity() != configured(pool="train").identity()
