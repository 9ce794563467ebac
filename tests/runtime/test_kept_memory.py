"""What a process keeps of runs that have ended: nothing, so a table of hundreds of runs fits its memory."""

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

RUN = raffed.RunConfig(
    method="fedavg",
    data=raffed.Data(split="p4c5", local_test=0.2, validation=0.2),
    model=raffed.Model("mlp", {"hidden": [4]}),
    local=raffed.Local(epochs=1),
    federation=raffed.Federation(rounds=2),
    runtime=raffed.Runtime(execution="serial"),
)
RUNS = {
    "a plain run": RUN,
    "models of clients": replace(RUN, method="scamap"),
    "clients chosen by their losses": RUN.changed(
        {"federation.selection": "power_of_choice", "federation.participation": 0.5}
    ),
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


def alive() -> list[str]:
    """Return the types of the setups and data sets that exist."""
    return [type(one).__name__ for one in gc.get_objects() if type(one) in (Setup, Dataset)]


@pytest.mark.parametrize("name", one_in(3, RUNS))
def test_an_ended_run_leaves_neither_its_setup_nor_its_data_in_memory(
    uncollected: None, tmp_path: Path, name: str
) -> None:
    before = len(alive())
    for seed in (1, 2):
        raffed.run(replace(RUNS[name], seed=seed), tmp_path / str(seed))
    assert len(alive()) == before


def test_a_stopped_and_resumed_run_leaves_nothing_in_memory(uncollected: None, tmp_path: Path) -> None:
    before = len(alive())
    assert raffed.run(RUN, tmp_path / "a", stop=lambda: True).state == "stopped"
    assert raffed.resume(tmp_path / "a").state == "finished"
    assert len(alive()) == before
