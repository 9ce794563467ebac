"""`raffed.compare`, `report`, `verify`, `tune` and `reproduce` do what the commands of these names do."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.errors import NumericsError, RunFolderError, UsageError

BASE = RunConfig(
    data=Data(split="dirichlet:4:0.5", samples=200),
    model=Model("mlp", {"hidden": [8]}),
    local=Local(lr=0.05, batch_size=32, epochs=1),
    federation=Federation(rounds=2, participation=0.5),
    runtime=Runtime(execution="serial"),
)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[raffed.RunResult, Path]:
    out = tmp_path_factory.mktemp("functions") / "both"
    found = raffed.compare({"fedavg": {}, "fedprox": {"mu": 0.1}}, BASE, out=out, progress=False)
    assert list(found.results) == ["fedavg", "fedprox"]
    assert found.diverged == {}
    assert found.report.path == out / "report" / "report.html"
    assert len(found.report.table) == 2
    return found.results["fedprox"], out


def test_a_compared_method_has_the_bits_of_a_run(compared: tuple[raffed.RunResult, Path]) -> None:
    prox, out = compared
    assert prox.hashes == raffed.run(replace(BASE, method="fedprox", args={"mu": 0.1})).hashes
    before = (out / "fedavg" / "run.json").stat().st_mtime_ns
    raffed.compare(["fedavg"], BASE, out=out, progress=False)
    assert (out / "fedavg" / "run.json").stat().st_mtime_ns == before
    with pytest.raises(RunFolderError, match="another configuration"):
        raffed.compare(["fedavg"], replace(BASE, seed=1), out=out, progress=False)


def test_compare_takes_one_method_with_several_settings(tmp_path: Path) -> None:
    """Each has the bits of a run with these arguments, a folder and a row of its own."""
    pairs = [("fedprox", {"mu": 0.1}), ("fedprox", {"mu": 5.0})]
    found = raffed.compare(["fedprox", *pairs], BASE, out=tmp_path / "all", progress=False)
    assert list(found.results) == ["fedprox", "fedprox,mu=0.1", "fedprox,mu=5.0"]
    assert len({one.folder for one in found.results.values()}) == len(found.report.table) == 3
    alone = raffed.run(replace(BASE, method="fedprox", args={"mu": 5.0}), tmp_path / "alone")
    assert found.results["fedprox,mu=5.0"].hashes == alone.hashes
    for twice in (["fedavg", "fedavg"], [pairs[0], pairs[0]]):
        with pytest.raises(UsageError, match="is given twice"):
            raffed.compare(twice, BASE, out=tmp_path / "twice", progress=False)
    with pytest.raises(UsageError, match="fedavg is given twice"):
        raffed.tune(["fedavg", "fedavg"], BASE, out=tmp_path / "sweep", progress=False)
    assert not (tmp_path / "twice").exists()


def test_a_diverging_method_spoils_no_other_s_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = raffed.run

    def diverging(config: RunConfig, *args: Any, **named: Any) -> raffed.RunResult:
        if config.method == "fedprox":
            raise NumericsError("the loss of client 3 is nan")
        return run(config, *args, **named)

    monkeypatch.setattr("raffed.runs.run.run", diverging)
    found = raffed.compare(["fedavg", "fedprox"], BASE, out=tmp_path / "a", progress=False)
    assert list(found.results) == ["fedavg"]
    assert found.diverged == {"fedprox": "the loss of client 3 is nan"}
    with pytest.raises(NumericsError, match="every run failed"):
        raffed.compare(["fedprox"], BASE, out=tmp_path / "b", progress=False)


def test_the_functions_work_inside_a_running_event_loop_and_in_a_thread(tmp_path: Path) -> None:
    found: list[dict[str, str]] = []

    def work(name: str) -> None:
        result = raffed.compare(["fedavg"], BASE, out=tmp_path / name, progress=False)
        assert raffed.verify(tmp_path / name / "fedavg", rounds=1, progress=False).ok
        found.append(result.results["fedavg"].hashes)

    async def main() -> None:
        work("loop")

    asyncio.run(main())
    thread = threading.Thread(target=work, args=["thread"])
    thread.start()
    thread.join()
    assert found == [raffed.run(BASE).hashes] * 2


def test_tune_refuses_an_axis_that_no_method_has_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        raffed.tune("fedprox", BASE, out=tmp_path / "a", grid={"nosuch.lr": [0.1]})
    with pytest.raises(UsageError, match="budget 'soon'"):
        raffed.tune("fedprox", BASE, out=tmp_path / "a", budget="soon")
    with pytest.raises(UsageError, match="no run"):
        raffed.report(tmp_path / "nothing", tmp_path / "other", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_progress_goes_to_stderr_and_standard_output_stays_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raffed.compare(["fedavg"], BASE, out=tmp_path / "a")
    told = capsys.readouterr()
    assert told.out == ""
    assert f"fedavg → {tmp_path / 'a' / 'fedavg'}" in told.err
    assert "round 2/2  loss" in told.err
