"""`pXcY:duplicates`: the assignment of FedMR's released code, whose loop runs twice (docs/papers/fedmr.md
§8 no. 2, switch A8).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raffed.data.partition import held_out, make_partition, partition_beside
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.errors import UsageError

LABELS = np.arange(1000, dtype=np.int64) % 10  # 100 of each class


def made(text: str, seed: int = 0, local_test: float | None = None) -> Partition:
    return make_partition(parse_split(text), LABELS, 10, None, seed, local_test)


@pytest.mark.parametrize("text", ["p5c2", "p10c3"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_sample_is_listed_twice_and_clients_have_twice_as_many_of_the_same_classes(
    text: str, seed: int
) -> None:
    one, two = made(text, seed), made(f"{text}:duplicates", seed)
    times = np.bincount(np.concatenate(two.train), minlength=1000)
    assert times.tolist() == [2] * 1000
    np.testing.assert_array_equal(two.class_counts(LABELS), 2 * one.class_counts(LABELS))
    assert (two.recipe["leftovers"], two.recipe["reused"]) == (0, 1000)


def test_a_sole_owner_has_each_sample_of_its_class_twice_and_others_overlap() -> None:
    """P5C2 is exclusive: 200 different samples a client, each twice. P10C2 at seed 0: class 0 belongs to
    clients 0 and 5, which have 50 + 50 of its 100; a second random half shares some with the first, and with
    the other client's first.
    """
    two = made("p5c2:duplicates")
    assert [(len(part), len(np.unique(part))) for part in two.train] == [(400, 200)] * 5
    assert two.recipe["doubled"] == 1000
    shared = made("p10c2:duplicates")
    of_0 = [np.unique(shared.train[client][LABELS[shared.train[client]] == 0]) for client in (0, 5)]
    assert all(50 < len(part) < 100 for part in of_0)
    assert len(np.intersect1d(*of_0)) > 0
    assert "doubled" not in made("p10c2").recipe


def test_the_first_pass_is_the_split_without_duplicates() -> None:
    for one, two in zip(made("p10c3").train, made("p10c3:duplicates").train, strict=True):
        assert set(one.tolist()) <= set(two.tolist())


def test_its_file_is_read_back_and_refused_where_the_recipe_hides_what_is_doubled(tmp_path: Path) -> None:
    two = made("p10c2:duplicates")
    two.save(tmp_path / "p.npz")
    assert Partition.load(tmp_path / "p.npz", 1000).sha256() == two.sha256()
    for hidden in ({"doubled": 0}, {"reused": 0}):
        Partition(two.train, two.test, 10, two.recipe | hidden).save(tmp_path / "q.npz")
        with pytest.raises(UsageError, match="listed twice"):
            Partition.load(tmp_path / "q.npz", 1000)


def test_nothing_that_is_trained_on_is_held_out() -> None:
    with pytest.raises(UsageError, match="clients would train on their local test samples"):
        made("p10c2:duplicates", local_test=0.2)
    with pytest.raises(UsageError, match="train on what is held out"):
        held_out(made("p10c2:duplicates"), 0.2, 0)


def test_samples_that_the_server_takes_leave_a_file_with_their_doubles(tmp_path: Path) -> None:
    """Of exclusive classes: 1000 − 10 samples, each twice at one client."""
    made("p5c2:duplicates").save(tmp_path / "p.npz")
    rest = partition_beside(np.arange(10), parse_split(f"file:{tmp_path / 'p.npz'}"), LABELS, 10, None, 0)
    assert (rest.recipe["reused"], rest.recipe["doubled"]) == (990, 990)
    assert min(int(part.min()) for part in rest.train) == 10
