"""What a process keeps of runs that have ended: nothing, so a table of hundreds of runs fits its memory.

Setups that are looked at and not executed share what is read and divided (`read_once`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed.data.dataset import Dataset
from raffed.runtime.setup import Setup
from tests.params import one_in
from tests.tiny import digits

RUN = digits("p4c5", 4, samples=500, local_test=0.2, validation=0.2, local=raffed.Local(epochs=1))
RUNS = {
    "a plain run": RUN,
    "models of clients": replace(RUN, method="scamap"),
    "stacks of clients": replace(RUN, numerics=raffed.Numerics(cohort=4)),
    "a clock": RUN.changed({"clock.server": "fedasync", "clock.speeds": "constant"}),
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No cycle is found in time. In a long process the collector looks at old objects too rarely."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(*kinds: type) -> int:
    """How many objects of these classes exist."""
    return sum(type(one) in kinds for one in gc.get_objects())


@pytest.mark.parametrize("name", one_in(2, RUNS))
def test_an_ended_run_leaves_neither_its_setup_nor_its_data_in_memory(
    uncollected: None, tmp_path: Path, name: str
) -> None:
    before = alive(Setup, Dataset)
    for seed in (1, 2):
        raffed.run(replace(RUNS[name], seed=seed), tmp_path / str(seed))
    assert alive(Setup, Dataset) == before
