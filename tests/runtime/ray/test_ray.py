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
from raffed.errors import ActorsLostError
from raffed.results.runfile import read_run
from tests.runtime.conftest import on, small
from tests.testing.answering import own_uploads

pytestmark = pytest.mark.usefixtures("ray_here")

Hashes = dict[str, dict[str, str]]
SLOW = pytest.mark.slow
PACKINGS: list[tuple[str, dict[str, Any]]] = [
    ("fedavg", {"actors": 2}),
    ("fedmr", {"actors": 2}),
    ("scamap", {"actors": 1}),
    ("scamap", {"actors": 5}),
    ("scamap", {"clients_per_actor": 3}),
]


@SLOW
@pytest.mark.parametrize(("method", "packing"), PACKINGS)
def test_any_packing_gives_the_serial_hashes(method: str, packing: dict[str, Any], reference: Hashes) -> None:
    assert raffed.run(on(small(method), execution="ray", **packing)).hashes == reference[method]


@pytest.mark.more
@pytest.mark.parametrize("clients", [2, pytest.param(10, marks=SLOW)])
def test_one_actor_a_client_is_as_many_processes_beside_the_driver_s_and_gives_the_serial_hashes(
    clients: int, tmp_path: Path
) -> None:
    data = Data(split=f"p{clients}c5", local_test=0.2)
    config = replace(small(rounds=2), data=data, federation=Federation(rounds=2))
    result = raffed.run(on(config, execution="ray", clients_per_actor=1), tmp_path / "run")
    assert result.hashes == raffed.run(config).hashes
    placement = read_run(tmp_path / "run")["placement"]
    pids = {place["pid"] for place in placement["places"]}
    assert len(pids) == clients
    assert pids.isdisjoint({placement["driver_pid"], os.getpid()})


def kills_an_actor_after_round_2(run: Path) -> Any:
    def kill(event: Any) -> None:
        if event.round == 2:
            os.kill(read_run(run)["placement"]["places"][0]["pid"], signal.SIGKILL)

    return kill


def test_a_client_actor_killed_in_a_round_changes_no_bit(reference: Hashes, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = raffed.run(on(small(), execution="ray", actors=2), run, watch=kills_an_actor_after_round_2(run))
    assert read_run(run)["placement"]["restarts"] == 1
    assert result.hashes == reference["scamap"]


@pytest.mark.parametrize("cohort", [0, pytest.param(4, marks=pytest.mark.more)])
def test_replies_are_the_same_on_other_actors_and_after_one_of_them_died(cohort: int, tmp_path: Path) -> None:
    """The table that the server answers from is read by actors that never saw the rounds before."""
    config = replace(small("fedavg"), method=own_uploads, numerics=Numerics(cohort=cohort))
    serial, run = raffed.run(config), tmp_path / "run"
    there = on(config, execution="ray", actors=2)
    assert raffed.run(there, run, watch=kills_an_actor_after_round_2(run)).hashes == serial.hashes
    assert read_run(run)["placement"]["restarts"] == 1


@SLOW
def test_actors_that_keep_dying_end_the_run_with_a_resumable_folder(
    reference: Hashes, tmp_path: Path
) -> None:
    run, config = tmp_path / "run", on(small(), execution="ray", actors=2, max_restarts=0)
    with pytest.raises(ActorsLostError, match="max_restarts = 0"):
        raffed.run(config, run, watch=kills_an_actor_after_round_2(run))
    assert read_run(run)["state"] == "failed"
    assert raffed.resume(run, runtime=small().runtime).hashes == reference["scamap"]


@pytest.mark.more
@pytest.mark.parametrize(
    ("cohort", "first", "second"),
    [
        (0, "serial", "ray"),
        pytest.param(3, "serial", "ray", marks=SLOW),
        pytest.param(0, "ray", "serial", marks=SLOW),
    ],
)
def test_a_run_that_was_stopped_is_resumed_elsewhere_to_the_same_bits(
    cohort: int, first: str, second: str, tmp_path: Path
) -> None:
    config, rounds = replace(small(), numerics=Numerics(cohort=cohort)), list[int]()
    began, resumed = (on(config, execution=one, actors=2 * (one == "ray")) for one in (first, second))
    raffed.run(
        began, tmp_path / "run", watch=lambda event: rounds.append(event.round), stop=lambda: len(rounds) >= 2
    )
    assert raffed.resume(tmp_path / "run", runtime=resumed.runtime).hashes == raffed.run(config).hashes


STACKED = replace(small(), numerics=Numerics(cohort=2))  # of 5 participants, so the last stack is short
STRUCK = replace(small(), faults=Faults(drop=0.2, late=0.2, corrupt=0.2, straggle=0.4, at="drop 0@2"))
MEASURED = replace(
    small("fedprox"), federation=Federation(rounds=1, measures="spectrum,term_strength", survey=1)
)


@pytest.mark.more
@pytest.mark.parametrize(
    ("there", "here"),
    [
        pytest.param(STACKED, STACKED, id="stacks"),
        pytest.param(replace(STRUCK, privacy=Privacy(masks=True)), STRUCK, id="faults and masks"),
        pytest.param(MEASURED, MEASURED, marks=SLOW, id="measures"),
    ],
)
def test_options_of_a_run_have_the_serial_bits_on_two_actors(there: RunConfig, here: RunConfig) -> None:
    assert raffed.run(on(there, execution="ray", actors=2)).hashes == raffed.run(here).hashes
