"""Ray gives the serial run's bits, whatever the actors, whoever dies (docs/design.md §1)."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Data, Faults, Federation, Numerics, Privacy, RunConfig
from raffed.errors import ActorsLostError, UsageError
from raffed.results.runfile import read_run
from tests.cli.conftest import contents
from tests.runtime.conftest import on, small
from tests.testing.answering import own_uploads

pytestmark = pytest.mark.usefixtures("ray_here")

Hashes = dict[str, dict[str, str]]
SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize(
    ("method", "packing"),
    [
        ("fedavg", {"actors": 2}),
        ("fedmr", {"actors": 2}),
        ("scamap", {"actors": 5}),
        ("scamap", {"clients_per_actor": 3}),
    ],
)
def test_any_packing_gives_the_serial_hashes(method: str, packing: dict[str, Any], reference: Hashes) -> None:
    assert raffed.run(on(small(method), execution="ray", **packing)).hashes == reference[method]


@pytest.mark.more
def test_one_actor_a_client_is_as_many_processes_and_gives_the_serial_hashes(tmp_path: Path) -> None:
    config = replace(small(), data=Data(split="p2c5", local_test=0.2), federation=Federation(rounds=2))
    result = raffed.run(on(config, execution="ray", clients_per_actor=1), tmp_path / "run")
    assert result.hashes == raffed.run(config).hashes
    placement = read_run(tmp_path / "run")["placement"]
    pids = {place["pid"] for place in placement["places"]}
    assert len({*pids, placement["driver_pid"], os.getpid()}) == 2 + 2


def kills_an_actor_after_round_2(run: Path) -> Any:
    def kill(event: Any) -> None:
        if event.round == 2:
            os.kill(read_run(run)["placement"]["places"][0]["pid"], signal.SIGKILL)

    return kill


OWN = replace(small("fedavg"), method=own_uploads)


@pytest.mark.parametrize(
    "config",
    [
        small(),
        # The table that the server answers from is read by actors that never saw the rounds before
        pytest.param(OWN, marks=pytest.mark.more, id="replies"),
        pytest.param(replace(OWN, numerics=Numerics(cohort=4)), marks=SLOW, id="replies to stacks"),
    ],
)
def test_a_client_actor_killed_in_a_round_changes_no_bit(config: RunConfig, tmp_path: Path) -> None:
    run, there = tmp_path / "run", on(config, execution="ray", actors=2)
    result = raffed.run(there, run, watch=kills_an_actor_after_round_2(run))
    assert read_run(run)["placement"]["restarts"] == 1
    assert result.hashes == raffed.run(config).hashes


@SLOW
def test_actors_that_keep_dying_end_the_run_in_a_resumable_folder(reference: Hashes, tmp_path: Path) -> None:
    run, config = tmp_path / "run", on(small(), execution="ray", actors=2, max_restarts=0)
    with pytest.raises(ActorsLostError, match="max_restarts = 0"):
        raffed.run(config, run, watch=kills_an_actor_after_round_2(run))
    assert read_run(run)["state"] == "failed"
    assert raffed.resume(run, runtime=small().runtime).hashes == reference["scamap"]


@pytest.mark.more
@pytest.mark.parametrize(
    ("cohort", "first", "second"), [(0, "serial", "ray"), pytest.param(3, "ray", "serial", marks=SLOW)]
)
def test_a_run_that_was_stopped_is_resumed_elsewhere_to_the_same_bits(
    cohort: int, first: str, second: str, tmp_path: Path
) -> None:
    config, seen = replace(small(), numerics=Numerics(cohort=cohort)), list[object]()
    began, resumed = (on(config, execution=one, actors=2 * (one == "ray")) for one in (first, second))
    raffed.run(began, tmp_path / "run", watch=seen.append, stop=lambda: len(seen) >= 2)
    assert raffed.resume(tmp_path / "run", runtime=resumed.runtime).hashes == raffed.run(config).hashes


@pytest.mark.parametrize("place", [{"actors": 11}, {"address": "127.0.0.1:1"}, {"threads": 2}], ids=str)
def test_a_run_is_not_rewound_for_a_place_that_is_refused(place: dict[str, Any], tmp_path: Path) -> None:
    raffed.run(small("scaffold", 2), tmp_path / "run")
    before, there = contents(tmp_path), on(small("scaffold", 3), execution="ray", **place)
    refused = pytest.raises(UsageError, match=r"only 10 clients|--address 127|number of threads")
    with refused:
        raffed.extend(tmp_path / "run", 3, runtime=there.runtime)
    if "threads" not in place:  # a fork may have other bits
        with refused:
            raffed.fork(tmp_path / "run", there, tmp_path / "fork")
    assert contents(tmp_path) == before


STACKED = replace(small(), numerics=Numerics(cohort=2))  # of 5 participants, so the last stack is short
STAGED = replace(small("map", 6), data=Data(split="stages:4:3:3:if4:outer"))
STRUCK = replace(small(), faults=Faults(drop=0.2, late=0.2, corrupt=0.2, straggle=0.4, at="drop 0@2"))
MEASURED = replace(
    small("fedprox"),
    data=Data(local_test=0.2, validation=0.2),
    federation=Federation(rounds=1, measures="spectrum,term_strength", survey=1),
)


@pytest.mark.more
@pytest.mark.parametrize(
    ("there", "here"),
    [
        pytest.param(STACKED, STACKED, id="stacks"),
        pytest.param(replace(STRUCK, privacy=Privacy(masks=True)), STRUCK, id="faults and masks"),
        pytest.param(MEASURED, MEASURED, marks=SLOW, id="measures and validation parts"),
        pytest.param(STAGED, STAGED, marks=SLOW, id="stages"),
    ],
)
def test_options_of_a_run_have_the_serial_bits_on_two_actors(there: RunConfig, here: RunConfig) -> None:
    assert raffed.run(on(there, execution="ray", actors=2)).hashes == raffed.run(here).hashes
