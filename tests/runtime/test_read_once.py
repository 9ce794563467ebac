"""Setups that are looked at and not executed share what is read and divided, and nothing is kept after."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import raffed
from raffed.data.dataset import Dataset
from raffed.data.partition_file import Partition
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.setup_model import read_once

RUN = raffed.RunConfig(
    method="fedavg",
    data=raffed.Data(split="p4c5", local_test=0.2, samples=500),
    model=raffed.Model("mlp", {"hidden": [4]}),
    runtime=raffed.Runtime(execution="serial"),
)
METHODS = ("fedavg", "fedprox", "fedrs", "scaffold", "feddf")  # the server of feddf holds images of its own


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def count(*kinds: type[Setup] | type[Dataset] | type[Partition]) -> int:
    return sum(type(one) in kinds for one in gc.get_objects())


def samples(partition: Partition) -> list[list[int]]:
    return [part.tolist() for part in (*partition.train, *partition.test)]


def test_setups_of_many_methods_hold_one_data_set_and_one_division(uncollected: None) -> None:
    before = count(Dataset), count(Partition)
    with read_once():
        setups = [prepare_run(RUN.changed({"method": name})) for name in METHODS[:4]]
        assert len({id(setup.dataset) for setup in setups}) == 1
        # The whole data set and the part of it; each setup's division is the same one, prepared for its style
        assert count(Dataset) - before[0] == 2
        del setups
    assert (count(Dataset), count(Partition)) == before


def test_what_is_looked_at_is_what_is_executed() -> None:
    """Methods, seeds and splits take turns, so that nothing of one is taken for another's."""
    runs = [
        RUN.changed({"method": name, "seed": seed, "data.split": split})
        for name in METHODS
        for seed in (1, 2)
        for split in ("p4c5", "iid:3")
    ]
    with read_once():
        seen = [samples(prepare_run(run).partition) for run in runs]
    assert seen == [samples(prepare_run(run).partition) for run in runs]


def test_another_data_set_replaces_what_was_kept(uncollected: None) -> None:
    before = count(Dataset)
    with read_once():
        for samples in (500, 400):
            prepare_run(RUN.changed({"data.samples": samples}))
        assert count(Dataset) - before == 3, "the whole one and two parts of it"
        prepare_run(RUN.changed({"data.download": True}))
        assert count(Dataset) - before == 2
    assert count(Dataset) == before
