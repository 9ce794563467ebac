"""Methods × faults of the infrastructure: no bit of weights, vaults or metrics may change, and nothing be lost.

    RAFFED_DATA=... python -m pytest tests/chaos -m slow        prints what was injected
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import RunConfig
from raffed.methods import build_method
from raffed.results.runfile import read_run
from tests.chaos.actors import Fault, Marks, StruckActor
from tests.runtime.conftest import on, small

pytestmark = pytest.mark.slow

ARGS: dict[str, dict[str, Any]] = {
    "map": {}, "scamap": {}, "gldp": {"head_epochs": 1.0, "body_epochs": 1.0}, "mpfedcon": {"head_epochs": 1.0}, "apfl": {},
    "feddyn": {},
}  # fmt: skip
STORM = (Fault("slow", 1, 0), Fault("before", 0, 1), Fault("in", 1, 1), Fault("after", 0, 2), Fault("evaluation", 0, 3))
PLANS = {"storm": STORM, **{fault.kind: (fault,) for fault in STORM}}
CASES = [*((method, "storm") for method in ARGS), *(("scamap", kind) for kind in PLANS if kind != "storm")]
FULL = (0.1, 0.5, 0.9)  # the disk is full after this share of the run's writes

Reference = Callable[[str], dict[str, str]]


def config(method: str) -> RunConfig:
    return replace(small(method), args=ARGS[method])


@pytest.fixture(scope="module")
def reference() -> Reference:
    """Hashes of the undisturbed serial run, by method, made once."""
    known: dict[str, dict[str, str]] = {}

    def of(method: str) -> dict[str, str]:
        if method not in known:
            known[method] = raffed.run(config(method)).hashes
        return known[method]

    return of


@pytest.fixture(scope="module")
def ledger(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """What was injected and what came of it, printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    told = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
    reporter.write_line(f"\nchaos: {told}")


def recorded(ledger: Counter[str], hashes: dict[str, str], expected: dict[str, str], *kinds: str) -> None:
    ledger.update({"runs": 1, "hashes compared": len(expected), "hashes equal": sum(hashes[k] == expected[k] for k in expected)})
    ledger.update(f"injected: {kind}" for kind in kinds)
    assert len(expected) == 3
    assert hashes == expected


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(("method", "plan"), CASES)
def test_actors_that_die_or_dawdle_change_no_bit(
    method: str, plan: str, reference: Reference, ledger: Counter[str], tmp_path: Path
) -> None:
    (tmp_path / "marks").mkdir()
    evaluates = build_method(method, ARGS[method]).has_global  # a server without a head asks nobody to evaluate it
    faults = tuple(fault for fault in PLANS[plan] if evaluates or fault.kind != "evaluation")
    about = struck(on(config(method), execution="ray", actors=2), tmp_path, faults)
    assert len(Marks(str(tmp_path / "marks"))) == len(faults) > 0  # every fault of the plan did happen
    assert about["placement"]["restarts"] == sum(fault.kind != "slow" for fault in faults)
    recorded(ledger, about["hashes"], reference(method), *(fault.kind for fault in faults))


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("method", ARGS)
def test_a_driver_that_dies_changes_no_bit(method: str, reference: Reference, ledger: Counter[str], tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(event: Any) -> None:
        if event.round == 3 and not killed:
            killed.append(read_run(tmp_path / "run")["placement"]["driver_pid"])
            os.kill(killed[0], signal.SIGKILL)

    result = raffed.run(on(config(method), execution="ray", actors=2), tmp_path / "run", watch=kill)
    assert read_run(tmp_path / "run")["placement"]["driver_pid"] != killed[0]
    recorded(ledger, result.hashes, reference(method), "driver")


@pytest.mark.parametrize("share", FULL)
@pytest.mark.parametrize("method", ARGS)
def test_a_full_disk_ends_the_run_resumably(
    method: str, share: float, reference: Reference, ledger: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some write on every file fails to come into being, as with ENOSPC; once there is room, the run goes on.

    All of a run's files take their names by os.replace: vaults, checkpoints, metrics, run.json."""
    disk = Disk(monkeypatch)
    raffed.run(config(method), tmp_path / "whole")
    disk.left = int(share * disk.writes)
    with pytest.raises(OSError, match="No space left on device"):
        raffed.run(config(method), tmp_path / "run")
    disk.left = 10**9
    recorded(ledger, raffed.resume(tmp_path / "run").hashes, reference(method), "full disk")


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

    from raffed.experiments.run import conduct_at
    from raffed.runtime.placement import Resources, make_plan
    from raffed.runtime.ray_pool import RayPool
    from raffed.runtime.setup import prepare

    setup = prepare(config)
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
