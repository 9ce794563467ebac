"""`raffed.compare(..., seeds=N)`, and how many runs execute at a time."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Runtime
from raffed.api.comparing import Comparison, SeedMean
from raffed.api.many_runs import (
    INSIDE,
    execute_at_once,
    places,
    seed_runs,
)
from raffed.api.running import Event, Run, Shown
from raffed.errors import RunFolderError, UsageError
from tests.api.test_functions import BASE as SMALL

BASE = replace(SMALL, seed=3)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """One seed after the other in this process, as for a notebook's own method: processes take seconds."""
    out = tmp_path_factory.mktemp("seeds") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("raffed.api.many_runs.in_processes", lambda runs: False)
        return raffed.compare(["fedavg"], BASE, out=out, seeds=3, progress=False)


def test_every_seed_has_a_result_with_the_bits_of_a_single_run(compared: Comparison) -> None:
    found = compared.seeds["fedavg"]
    assert list(found.results) == [3, 4, 5]
    assert found.failed == {}
    assert found.results[4].hashes == raffed.run(replace(BASE, seed=4)).hashes
    assert compared.results["fedavg"].hashes == found.results[3].hashes
    assert sorted(set(found.to_pandas()["seed"])) == [3, 4, 5]


def test_a_mean_over_seeds_has_student_s_interval(compared: Comparison) -> None:
    """With three seeds the factor is t(2) = 4.3027: half = 4.3027 s / √3."""
    found = compared.seeds["fedavg"]
    values = [one.accuracy for one in found.results.values()]
    mean = sum(values) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    assert (found.accuracy.mean, found.accuracy.seeds) == (pytest.approx(mean), 3)
    assert found.accuracy.half == pytest.approx(4.3027 * deviation / math.sqrt(3), rel=1e-4)
    assert str(found.accuracy).endswith("(95 %, 3 seeds)")
    assert compared.report.table["accuracy_last_ci"].iloc[0] == pytest.approx(found.accuracy.half)
    assert str(SeedMean(0.5, math.nan, 2)) == "0.5000 (2 seeds, too few for an interval)"


def test_calling_it_again_keeps_what_is_finished(compared: Comparison) -> None:
    folder = compared.seeds["fedavg"].results[3].folder
    assert folder is not None
    before = (folder / "run.json").stat().st_mtime_ns
    again = raffed.compare(["fedavg"], BASE, out=folder.parents[1], seeds=3, progress=False)  # in processes
    assert again.seeds["fedavg"].results[3].hashes == compared.seeds["fedavg"].results[3].hashes
    assert (folder / "run.json").stat().st_mtime_ns == before
    other = replace(BASE, local=replace(BASE.local, lr=0.5))
    with pytest.raises(RunFolderError, match="another configuration"):
        raffed.compare(["fedavg"], other, out=folder.parents[1], seeds=3, progress=False)


def test_the_runs_of_seeds_start_no_further_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without a guard would otherwise start itself again in each of its processes."""
    with pytest.raises(UsageError, match="seed = 2147483648 is outside"):
        seed_runs({"fedavg": replace(BASE, seed=2**31 - 1)}, tmp_path, 2)
    monkeypatch.setenv(INSIDE, "1")
    with pytest.raises(UsageError, match="__main__"):
        raffed.compare(["fedavg"], BASE, out=tmp_path / "out", seeds=2, progress=False)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], None]:
    """machine(cores, GiB): what the machine offers."""

    def offers(cores: int, memory: float) -> None:
        monkeypatch.setattr("raffed.runtime.machine.usable_cores", lambda: cores)
        monkeypatch.setattr("raffed.budget.free_memory", lambda: memory * 2**30)

    return offers


@pytest.mark.parametrize(
    ("cores", "memory", "threads", "runs", "at_once"),
    [(8, 64.0, 1, 5, 5), (8, 64.0, 3, 20, 2), (8, 1.0, 1, 20, 2), (1, 0.1, 4, 5, 1)],
)
def test_never_more_runs_at_a_time_than_cores_and_memory_allow(
    machine: Callable[[int, float], None], cores: int, memory: float, threads: int, runs: int, at_once: int
) -> None:
    machine(cores, memory)
    assert len(places(Runtime(execution="serial", threads=threads), runs)) == at_once


def test_runs_on_gpus_share_them_and_use_all(
    machine: Callable[[int, float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(16, 64.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    whole = places(Runtime(execution="serial", gpu_fraction=1.0), 9)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in whole] == ["2", "5"]
    halves = places(Runtime(execution="serial", gpu_fraction=0.5), 3)
    assert [one["CUDA_VISIBLE_DEVICES"] for one in halves] == ["2", "5", "2"]


class Heard(Shown):
    def __init__(self) -> None:
        self.events: list[str] = []

    def show(self, event: Event, **more: Any) -> None:
        about = event["text"] if event["event"] == "said" else more["run"].config.seed
        self.events.append(f"{event['event']} {about}")


def two_runs(folder: Path) -> list[Run]:
    return [Run(f"seed {k}", replace(BASE, seed=k), folder / f"seed-{k}", {"seed": k}) for k in range(2)]


def test_a_dead_process_is_named_and_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, sys; print('a warning', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    monkeypatch.setattr("raffed.api.many_runs.PROGRAM", program)
    runs = two_runs(tmp_path)
    shown = Heard()
    endings = execute_at_once(runs, shown, free=[{}])
    assert [one.state for one in endings.values()] == ["failed", "failed"]
    assert "signal 9" in endings[runs[0]].why
    # Both processes give the same warning, which is shown once
    assert shown.events == ["begin 0", "said a warning", "failed 0", "begin 1", "failed 1"]


def test_a_second_request_to_stop_ends_a_deaf_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); "
        'print(\'{{"event": "ready"}}\', flush=True); time.sleep(600)'
    )
    monkeypatch.setattr("raffed.api.many_runs.PROGRAM", program)
    monkeypatch.setattr("raffed.api.many_runs.GRACE", 0.5)
    runs = two_runs(tmp_path)
    shown = Heard()
    assert execute_at_once(runs, shown, lambda: True, [{}]) == {}, "nothing begins"

    def stop() -> bool:
        if ready := "ready 0" in shown.events:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        return ready

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest-xdist's processes ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            execute_at_once(runs, shown, stop, [{}])
    finally:
        signal.signal(signal.SIGINT, before)
    assert shown.events[-2:] == ["ready 0", "failed 0"]
