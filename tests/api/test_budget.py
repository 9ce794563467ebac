"""A budget of `raffed reproduce` is filled with whole claims, with made-up seconds of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raffed import Claim, RunConfig
from raffed.tables.items import Cell, Item
from raffed.tables.planner import Planned, claims_first, planned_runs

SECONDS = {"fedavg": 10.0, "fedprox": 20.0, "map": 40.0}
ITEM = Item(
    "lab",
    "table",
    "A table",
    "accuracy_best",
    tuple(Cell(method, "digits", RunConfig(method), {}) for method in SECONDS),
    claims=(
        Claim.above("MAP is above FedAvg", "map", "fedavg", "digits"),
        Claim.above("FedProx is above FedAvg", "fedprox", "fedavg", "digits"),
    ),
)


def chosen(jobs: list[Planned]) -> list[tuple[str, int]]:
    return [(job.cells[0].row, job.seed) for job in jobs if not job.left_out]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "first", "undecided"),
    [
        (140.0, [("fedavg", 0), ("map", 0), ("fedavg", 1), ("map", 1), ("fedprox", 0), ("fedprox", 1)], []),
        (120.0, [("fedavg", 0), ("map", 0), ("fedavg", 1), ("map", 1), ("fedprox", 0)], ["FedProx"]),
        (99.0, [("fedavg", 0), ("fedprox", 0), ("fedavg", 1), ("fedprox", 1)], ["MAP"]),
        (59.0, [("fedavg", 0), ("fedprox", 0), ("fedavg", 1)], ["MAP", "FedProx"]),
    ],
)
def test_whole_claims_come_before_parts_of_others(
    tmp_path: Path, seconds: float, first: list[tuple[str, int]], undecided: list[str]
) -> None:
    """One run of each method takes 70 s, MAP's claim 100 s with two seeds, and FedProx's 60 s."""
    jobs = [
        replace(job, seconds=SECONDS[job.config.method])
        for job in planned_runs(ITEM, "full", tmp_path, (), 2)
    ]
    kept, too_long = claims_first(ITEM, jobs, seconds)
    assert chosen(kept) == first
    assert [claim.text.split()[0] for claim in too_long] == undecided
    assert {job.folder for job in kept} == {job.folder for job in jobs}


def test_a_claim_whose_data_are_missing_takes_no_time_from_others(tmp_path: Path) -> None:
    jobs = [
        replace(
            job,
            seconds=SECONDS[job.config.method],
            left_out="missing: data" if job.config.method == "map" else "",
        )
        for job in planned_runs(ITEM, "full", tmp_path, (), 2)
    ]
    kept, too_long = claims_first(ITEM, jobs, 60.0)
    assert chosen(kept) == [("fedavg", 0), ("fedprox", 0), ("fedavg", 1), ("fedprox", 1)]
    assert not too_long
