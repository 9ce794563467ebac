"""Methods × faults of the infrastructure: no bit of weights, vaults or metrics may change, and nothing be
lost.

RAFFED_DATA=... python -m pytest tests/reliability -m slow
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import RunConfig
from raffed.methods import build_method
from raffed.results.runfile import read_run
from tests.reliability.actors import Fault, Marks, StruckActor
from tests.runtime.conftest import on, small
from tests.runtime.odd_actors import conducted

pytestmark = pytest.mark.slow

ARGS: dict[str, dict[str, Any]] = {
    "map": {},
    "scamap": {},
    "gldp": {"head_epochs": 1.0, "body_epochs": 1.0},
    "mpfedcon": {"head_epochs": 1.0},
    "apfl": {},
    "feddyn": {},
}
STRIKES = (("slow", 1, 0), ("before", 0, 1), ("in", 1, 1), ("after", 0, 2), ("evaluation", 0, 3))
STORM = tuple(Fault(*one) for one in STRIKES)
PLANS = {"storm": STORM, **{fault.kind: (fault,) for fault in STORM}}
# Killed when the first round not before this is told: checkpoints are after every second one
KILLED_AT = (1, 3, 5)
ROUNDS = 12  # where a driver is killed three times
RAFFED = [sys.executable, "-m", "raffed"]
EXPERIMENT = """method = "{method}"
args = {{{args}}}
data.local_test = 0.2
model = {{name = "mlp", args.hidden = [16]}}
local = {{epochs = 1, batch_size = 32}}
federation = {{rounds = {rounds}, participation = 0.5}}
runtime = {{execution = "serial", checkpoint_every = 2}}
"""  # config(method, ROUNDS) as a person would write it

Reference = Callable[..., dict[str, str]]


def struck_by(plan: str, method: str) -> tuple[Fault, ...]:
    """The faults of a plan that can strike a method: a server without a head asks nobody to evaluate it."""
    evaluates = build_method(method, ARGS[method]).has_global
    return tuple(fault for fault in PLANS[plan] if evaluates or fault.kind != "evaluation")


CASES = [(method, plan) for method in ARGS for plan in PLANS if struck_by(plan, method)]


def config(method: str, rounds: int = 4) -> RunConfig:
    return replace(small(method, rounds), args=ARGS[method])


@pytest.fixture(scope="module")
def reference() -> Reference:
    """Hashes of the undisturbed serial run, by method and rounds, made once."""
    known: dict[tuple[str, int], dict[str, str]] = {}

    def of(method: str, rounds: int = 4) -> dict[str, str]:
        if (method, rounds) not in known:
            known[method, rounds] = raffed.run(config(method, rounds)).hashes
        return known[method, rounds]

    return of


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(("method", "plan"), CASES)
def test_actors_that_die_or_dawdle_change_no_bit(
    method: str, plan: str, carrier: str, reference: Reference, tmp_path: Path
) -> None:
    (tmp_path / "marks").mkdir()
    faults = struck_by(plan, method)
    here = on(config(method), execution="ray", actors=2)
    about = conducted(here, tmp_path / "run", StruckActor, faults, str(tmp_path / "marks"))
    assert len(Marks(str(tmp_path / "marks"))) == len(faults) > 0  # every fault of the plan did happen
    assert about["placement"]["restarts"] == sum(fault.kind != "slow" for fault in faults)
    assert about["hashes"] == reference(method)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("method", ARGS)
def test_a_driver_that_dies_three_times_changes_no_bit(
    method: str, reference: Reference, tmp_path: Path
) -> None:
    """Each time it is replaced by one that goes on from the last checkpoint and does the rounds since
    then again.
    """
    drivers: list[int] = []

    def kill(event: Any) -> None:
        pid = read_run(tmp_path / "run")["placement"]["driver_pid"]
        if len(drivers) < len(KILLED_AT) and event.round >= KILLED_AT[len(drivers)] and pid not in drivers:
            drivers.append(pid)
            os.kill(pid, signal.SIGKILL)

    result = raffed.run(on(config(method, ROUNDS), execution="ray", actors=2), tmp_path / "run", watch=kill)
    last = read_run(tmp_path / "run")["placement"]["driver_pid"]
    assert len({*drivers, last}) == len(KILLED_AT) + 1
    assert result.hashes == reference(method, ROUNDS)


@pytest.mark.parametrize("method", ARGS)
def test_a_command_that_is_killed_three_times_and_resumed_each_time_changes_no_bit(
    method: str, reference: Reference, tmp_path: Path
) -> None:
    """kill -9 for the process of `raffed run` and then of every `raffed resume` but the last."""
    file, folder, wanted = tmp_path / "exp.toml", tmp_path / "run", config(method, ROUNDS)
    args = ", ".join(f"{name} = {value}" for name, value in ARGS[method].items())
    file.write_text(EXPERIMENT.format(method=method, args=args, rounds=ROUNDS))
    command = ["run", str(file), "--out", str(folder)]
    for number in KILLED_AT:
        assert killed_after(number, command) == -signal.SIGKILL
        assert read_run(folder)["state"] == "running"
        command = ["resume", str(folder)]
    assert read_run(folder)["identity"] == wanted.identity()
    last = [*RAFFED, *command, "--execution", "serial", "--quiet"]
    assert subprocess.run(last, check=False, timeout=300).returncode == 0
    assert read_run(folder)["hashes"] == reference(method, ROUNDS)


def killed_after(number: int, command: list[str]) -> int:
    """The exit code of a command of raffed that is killed as soon as it has told of round `number` or a
    later one.
    """
    told = [*RAFFED, *command, "--execution", "serial", "--json"]
    with subprocess.Popen(told, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if json.loads(line).get("round", 0) >= number:
                process.kill()
                break
    return process.returncode
