"""Ray gives the serial run's bits, whatever the actors, whoever dies  (docs/design.md §1)."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Data, Faults, Federation, Numerics, Privacy
from raffed.errors import ActorsLostError, NumericsError, UsageError
from raffed.results.runfile import read_run
from tests.runtime.conftest import on, small

pytestmark = pytest.mark.usefixtures("ray_here")

Hashes = dict[str, dict[str, str]]


SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize("method", ["fedavg", "fedmr", "scamap"])
def test_two_packed_actors_give_the_serial_hashes(method: str, reference: Hashes, tmp_path: Path) -> None:
    result = raffed.run(on(small(method), execution="ray", actors=2), tmp_path / "run")
    assert result.hashes == reference[method]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", [{"actors": 1}, {"actors": 5}, {"clients_per_actor": 3}])
def test_any_packing_gives_the_serial_hashes(
    runtime: dict[str, Any], reference: Hashes, tmp_path: Path
) -> None:
    result = raffed.run(on(small(), execution="ray", **runtime), tmp_path / "run")
    assert result.hashes == reference["scamap"]


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


def test_a_client_actor_killed_in_a_round_changes_no_bit(reference: Hashes, tmp_path: Path) -> None:
    def kill(event: Any) -> None:
        if event.round == 2:
            os.kill(read_run(tmp_path / "run")["placement"]["places"][0]["pid"], signal.SIGKILL)

    result = raffed.run(on(small(), execution="ray", actors=2), tmp_path / "run", watch=kill)
    assert read_run(tmp_path / "run")["placement"]["restarts"] == 1
    assert result.hashes == reference["scamap"]


@SLOW
def test_the_driver_actor_killed_in_a_round_resumes_to_the_same_bits(
    reference: Hashes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed: list[int] = []

    def kill(event: Any) -> None:
        if event.round == 3 and not killed:
            killed.append(read_run(tmp_path / "run")["placement"]["driver_pid"])
            os.kill(killed[0], signal.SIGKILL)

    seen: list[int] = []
    result = raffed.run(
        on(small(), execution="ray", actors=2),
        tmp_path / "run",
        watch=lambda e: (seen.append(e.round), kill(e))[0],
    )
    assert read_run(tmp_path / "run")["placement"]["driver_pid"] != killed[0]
    assert result.hashes == reference["scamap"]
    assert "the driver actor was lost and is replaced (replacement 1 of " in caplog.text


@pytest.mark.slow
def test_actors_that_keep_dying_end_the_run_with_a_resumable_folder(
    reference: Hashes, tmp_path: Path
) -> None:
    def kill(event: Any) -> None:
        if event.round == 2:
            os.kill(read_run(tmp_path / "run")["placement"]["places"][0]["pid"], signal.SIGKILL)

    with pytest.raises(ActorsLostError, match="max_restarts = 0"):
        raffed.run(on(small(), execution="ray", actors=2, max_restarts=0), tmp_path / "run", watch=kill)
    assert read_run(tmp_path / "run")["state"] == "failed"
    assert raffed.resume(tmp_path / "run", runtime=small().runtime).hashes == reference["scamap"]


@pytest.mark.slow
def test_a_run_stopped_on_ray_resumes_serially_to_the_same_bits(reference: Hashes, tmp_path: Path) -> None:
    rounds: list[int] = []
    result = raffed.run(
        on(small(), execution="ray", actors=2),
        tmp_path / "run",
        watch=lambda e: rounds.append(e.round),
        stop=lambda: len(rounds) > 0,
    )
    # Four tiny rounds may be over before the driver hears of it
    assert result.state in (
        "stopped",
        "finished",
    )
    assert raffed.resume(tmp_path / "run", runtime=small().runtime).hashes == reference["scamap"]


@pytest.mark.more
def test_a_stopped_serial_run_resumes_on_ray_to_the_same_bits(reference: Hashes, tmp_path: Path) -> None:
    rounds: list[int] = []
    result = raffed.run(
        small(), tmp_path / "run", watch=lambda e: rounds.append(e.round), stop=lambda: len(rounds) == 3
    )
    assert (result.state, result.hashes, rounds) == ("stopped", {}, [1, 2, 3])
    resumed = raffed.resume(tmp_path / "run", runtime=on(small(), execution="ray", actors=1).runtime)
    assert resumed.hashes == reference["scamap"]


@pytest.mark.more
@pytest.mark.parametrize(
    "actors", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_a_cohort_has_the_same_bits_wherever_its_stacks_are_computed(tmp_path: Path, actors: int) -> None:
    """Stacks of 2 of 5 participants, the last one short; and other bits than one by one."""
    stacked = replace(small(), numerics=Numerics(cohort=2))
    serial = raffed.run(stacked)
    assert raffed.run(on(stacked, execution="ray", actors=actors), tmp_path / "run").hashes == serial.hashes
    assert serial.hashes["weights"] != raffed.run(small()).hashes["weights"]


@pytest.mark.slow
def test_a_stopped_serial_cohort_resumes_on_ray_to_the_same_bits(tmp_path: Path) -> None:
    stacked, rounds = replace(small(), numerics=Numerics(cohort=3)), list[int]()
    raffed.run(
        stacked, tmp_path / "run", watch=lambda e: rounds.append(e.round), stop=lambda: len(rounds) == 3
    )
    resumed = raffed.resume(tmp_path / "run", runtime=on(stacked, execution="ray", actors=2).runtime)
    assert resumed.hashes == raffed.run(stacked).hashes


def test_ray_refuses_to_move_private_state() -> None:
    import ray
    import torch

    from raffed.core.messages import ClientState
    from raffed.core.params import Params

    client_state = ClientState(Params({"body.w": torch.zeros(2)}), Params({}), {})
    for hidden in (client_state, [client_state], {"deep": (1, [client_state])}):
        # Ray wraps the BoundaryError in its own message
        with pytest.raises(TypeError, match="ClientState is private"):
            ray.put(hidden)


@pytest.mark.slow
def test_a_diverging_run_on_ray_names_method_round_and_client(tmp_path: Path) -> None:
    wild = replace(small("fedavg"), local=replace(small().local, lr=1e3))
    with pytest.raises(NumericsError, match=r"FedAvg.*client \d+ in round 1|FedAvg, round 1, client \d+"):
        raffed.run(on(wild, execution="ray", actors=2), tmp_path / "run")
    assert read_run(tmp_path / "run")["state"] == "failed"


def test_a_gpu_asked_for_where_none_is_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"gpu_fraction = 0\.5"):
        raffed.run(on(small(), execution="ray", gpu_fraction=0.5), tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.slow
def test_no_process_is_left_behind_by_a_run(tmp_path: Path) -> None:
    raffed.run(on(small(rounds=1), execution="ray", actors=2), tmp_path / "run")
    placement = read_run(tmp_path / "run")["placement"]
    pids = [place["pid"] for place in placement["places"]] + [placement["driver_pid"]]
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_the_spectrum_and_the_strength_of_terms_have_the_serial_bits(tmp_path: Path) -> None:
    config = small("fedprox")
    asked = replace(config.federation, rounds=1, measures="spectrum,term_strength", survey=1)
    config = replace(config, federation=asked)
    runs = [raffed.run(on(config, execution=one)) for one in ("serial", "ray")]
    assert runs[0].hashes == runs[1].hashes
    assert {"eigenvalue_variance", "term_strength"} <= set(runs[1].to_pandas()["metric"])


@pytest.mark.more
def test_a_plan_of_faults_has_the_serial_bits_on_two_actors_and_under_masks(tmp_path: Path) -> None:
    struck = replace(small(), faults=Faults(drop=0.2, late=0.2, corrupt=0.2, straggle=0.4, at="drop 0@2"))
    masked = replace(struck, privacy=Privacy(masks=True))
    assert (
        raffed.run(on(masked, execution="ray", actors=2), tmp_path / "run").hashes
        == raffed.run(struck).hashes
    )
