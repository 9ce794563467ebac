"""Methods × faults of the infrastructure: no bit of weights, vaults or metrics may change, and nothing be
lost.

RAFFED_DATA=... python -m pytest tests/reliability -m slow        prints what was injected
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import RunConfig
from raffed.errors import DiskFullError
from raffed.methods import build_method
from raffed.results.runfile import read_run
from tests.reliability.actors import Fault, Marks, StruckActor
from tests.runtime.conftest import on, small

pytestmark = pytest.mark.slow

ARGS: dict[str, dict[str, Any]] = {
    "map": {},
    "scamap": {},
    "gldp": {"head_epochs": 1.0, "body_epochs": 1.0},
    "mpfedcon": {"head_epochs": 1.0},
    "apfl": {},
    "feddyn": {},
}
STORM = (
    Fault("slow", 1, 0),
    Fault("before", 0, 1),
    Fault("in", 1, 1),
    Fault("after", 0, 2),
    Fault("evaluation", 0, 3),
)
PLANS = {"storm": STORM, **{fault.kind: (fault,) for fault in STORM}}
FULL = (0.1, 0.5, 0.9)  # the disk is full after this share of the run's writes
# Killed when the first round not before this is told: checkpoints are after every second one
KILLED_AT = (
    1,
    3,
    5,
)
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


@pytest.fixture(scope="module")
def ledger(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """What was injected and what came of it, printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    plugins = request.config.pluginmanager
    reporter, capturing = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    assert reporter is not None
    assert capturing is not None
    told = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
    with capturing.global_and_fixture_disabled():  # what a fixture prints is shown of failures alone
        reporter.write_line(f"\nchaos: {told}")


def recorded(ledger: Counter[str], hashes: dict[str, str], expected: dict[str, str], *kinds: str) -> None:
    ledger.update(
        {
            "runs": 1,
            "hashes compared": len(expected),
            "hashes equal": sum(hashes[k] == expected[k] for k in expected),
        }
    )
    ledger.update(f"injected: {kind}" for kind in kinds)
    assert len(expected) == 3
    assert hashes == expected


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(("method", "plan"), CASES)
def test_actors_that_die_or_dawdle_change_no_bit(
    method: str, plan: str, carrier: str, reference: Reference, ledger: Counter[str], tmp_path: Path
) -> None:
    (tmp_path / "marks").mkdir()
    faults = struck_by(plan, method)
    here = on(config(method), execution="ray", actors=2)
    about = struck(here, tmp_path, faults)
    assert len(Marks(str(tmp_path / "marks"))) == len(faults) > 0  # every fault of the plan did happen
    assert about["placement"]["restarts"] == sum(fault.kind != "slow" for fault in faults)
    recorded(ledger, about["hashes"], reference(method), *(fault.kind for fault in faults))


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("method", ARGS)
def test_a_driver_that_dies_changes_no_bit(
    method: str, reference: Reference, ledger: Counter[str], tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill(event: Any) -> None:
        if event.round == 3 and not killed:
            killed.append(read_run(tmp_path / "run")["placement"]["driver_pid"])
            os.kill(killed[0], signal.SIGKILL)

    result = raffed.run(on(config(method), execution="ray", actors=2), tmp_path / "run", watch=kill)
    assert read_run(tmp_path / "run")["placement"]["driver_pid"] != killed[0]
    recorded(ledger, result.hashes, reference(method), "driver")


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("method", ARGS)
def test_a_driver_that_dies_three_times_changes_no_bit(
    method: str, reference: Reference, ledger: Counter[str], tmp_path: Path
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
    recorded(ledger, result.hashes, reference(method, ROUNDS), *["driver"] * len(drivers))


@pytest.mark.parametrize("method", ARGS)
def test_a_command_that_is_killed_three_times_and_resumed_each_time_changes_no_bit(
    method: str, reference: Reference, ledger: Counter[str], tmp_path: Path
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
    assert (
        subprocess.run(
            [*RAFFED, *command, "--execution", "serial", "--quiet"], check=False, timeout=300
        ).returncode
        == 0
    )
    recorded(ledger, read_run(folder)["hashes"], reference(method, ROUNDS), *["command"] * len(KILLED_AT))


@pytest.mark.parametrize("share", FULL)
@pytest.mark.parametrize("method", ARGS)
def test_a_full_disk_ends_the_run_resumably(
    method: str,
    share: float,
    reference: Reference,
    ledger: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From some write on every file fails to come into being, as with ENOSPC; once there is room, the run
    goes on.

        All of a run's files take their names by os.replace: vaults, checkpoints, metrics, run.json.
    """
    disk = Disk(monkeypatch)
    raffed.run(config(method), tmp_path / "whole")
    disk.left = int(share * disk.writes)
    with pytest.raises(
        DiskFullError,
        match=r"there is no space left at .*; free some space, then `raffed resume .*run` continues the run",
    ):
        raffed.run(config(method), tmp_path / "run")
    disk.left = 10**9
    recorded(ledger, raffed.resume(tmp_path / "run").hashes, reference(method), "full disk")


def killed_after(number: int, command: list[str]) -> int:
    """The exit code of a command of raffed that is killed as soon as it has told of round `number` or a
    later one.
    """
    told = [*RAFFED, *command, "--execution", "serial", "--json"]
    with subprocess.Popen(told, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("round", 0) >= number:
                process.kill()
                break
    return process.returncode


class Disk:
    """os.replace that counts, and raises ENOSPC once `left` is used up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes, self.left, self._replace = 0, 10**9, os.replace
        monkeypatch.setattr(os, "replace", self)

    def __call__(self, source: Any, target: Any, **kwargs: Any) -> None:
        self.writes, self.left = self.writes + 1, self.left - 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        self._replace(source, target, **kwargs)


def struck(config: RunConfig, path: Path, plan: tuple[Fault, ...]) -> dict[str, Any]:
    """A run on a pool of two actors that the plan strikes; its run.json."""
    import ray

    from raffed.runs.federation import conduct_at
    from raffed.runtime.placement import Resources, make_plan
    from raffed.runtime.ray.driver import RayPool
    from raffed.runtime.setup import prepare_run

    setup = prepare_run(config)
    homes = make_plan(setup.config, 10, Resources(2, 0, 2**40))
    told = ray.put(setup)

    def start(ref: Any, homes: Any, actor: int, vaults: Path) -> Any:
        made = StruckActor.options(num_cpus=0)  # type: ignore[attr-defined]
        return made.remote(ref, str(vaults), homes.homes[actor], actor, plan, str(path / "marks"))

    folder = path / "run"
    started = [start(told, homes, actor, folder / "vaults") for actor in range(2)]
    pool = RayPool(setup, told, homes, folder / "vaults", started, start)
    for _ in conduct_at(setup, folder, False, pool, lambda: False):
        pass
    return read_run(folder)
