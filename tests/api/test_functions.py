"""`raffed.compare`, `report`, `verify`, `tune` and `reproduce` do what the commands of these names do,
`compare` also with seeds; `raffed new` writes a project whose own checks pass.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Federation, RunConfig, Runtime
from raffed.api.comparing import Comparison, SeedMean, SeedResults
from raffed.api.creating import FILES, new_project
from raffed.api.many_runs import INSIDE, execute_at_once, places, seed_runs
from raffed.api.running import Event, Run, Shown
from raffed.errors import NumericsError, RunFolderError, UsageError
from tests.cli.conftest import Cli, cli
from tests.tiny import digits
from tests.warm import python

__all__ = ["cli"]
BASE = digits("dirichlet:4:0.5", federation=Federation(2, 0.5), samples=200)
SEEDED = replace(BASE, seed=3)


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
    """Each has a folder and a row of its own."""
    pairs = [("fedprox", {"mu": 0.1}), ("fedprox", {"mu": 5.0})]
    found = raffed.compare(["fedprox", *pairs], BASE, out=tmp_path / "all", progress=False)
    assert list(found.results) == ["fedprox", "fedprox,mu=0.1", "fedprox,mu=5.0"]
    assert len({one.folder for one in found.results.values()}) == len(found.report.table) == 3
    assert len({one.hashes["weights"] for one in found.results.values()}) == 3
    with pytest.raises(UsageError, match="is given twice"):
        raffed.compare([pairs[0], pairs[0]], BASE, out=tmp_path / "twice", progress=False)
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
    for budget, said in (("soon", "budget 'soon'"), (-1, "budget '-1s'"), (0.0, r"budget '0\.0s'")):
        with pytest.raises(UsageError, match=said):
            raffed.tune("fedprox", BASE, out=tmp_path / "a", budget=budget)
    with pytest.raises(UsageError, match="no run"):
        raffed.report(tmp_path / "nothing", tmp_path / "other", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_progress_goes_to_standard_error_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raffed.compare("fedavg", BASE, out=tmp_path / "a")
    told = capsys.readouterr()
    assert told.out == ""
    assert f"fedavg → {tmp_path / 'a' / 'fedavg'}" in told.err
    assert "round 2/2  loss" in told.err


ROOT = Path(__file__).parents[2]


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return python(["-m", *words], cwd=folder, env={**os.environ, "PYTHONPATH": path}, timeout=300)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "mylab"
    assert len(new_project(folder)) == len(FILES)
    return folder


def test_the_project_holds_what_its_readme_names(project: Path) -> None:
    found = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert found == {one.format(name="mylab") for one in FILES}
    assert not any("@NAME@" in path.read_text() for path in project.rglob("*") if path.is_file())


@pytest.mark.slow
def test_its_code_passes_ruff_and_mypy(project: Path) -> None:
    ruff = [("ruff", *words, "--no-cache", ".") for words in (["check"], ["format", "--check"])]
    for words in [*ruff, ("mypy", "--cache-dir", os.devnull)]:
        done = call(project, *words)
        assert done.returncode == 0, done.stdout


@pytest.mark.more
def test_its_tests_pass_check_by_check(project: Path) -> None:
    known = any(one.value == "raffed.testing.plugin" for one in entry_points(group="pytest11"))
    plugin = () if known else ("-p", "raffed.testing.plugin")  # an installed raffed registers it
    done = call(project, "pytest", *plugin, "-p", "no:cacheprovider", "-q", "-rA")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_the_contract_holds[mylab.methods:myprox-same-seed-same-bits]" in done.stdout
    assert "test_the_contract_holds[mylab.data:Halves-each-sample-once]" in done.stdout


@pytest.mark.more
def test_its_run_file_runs_its_method(project: Path) -> None:
    done = call(project, "raffed", "run", "experiments/base.toml", "--rounds", "1", "--out", "runs/a")
    assert done.returncode == 0, done.stderr
    assert (project / "runs" / "a" / "run.json").exists()


def test_check_leaves_with_1_where_a_check_fails_and_2_where_the_reference_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text(
        "from raffed import Method, Term\n\n\nclass Bad(Term):\n    def loss(self, f, k):\n"
        "        return f.logits.sum() / 0.0\n\n\ndef bad() -> Method:\n"
        "    return Method('Bad', terms=(Bad(),))\n"
    )
    done = cli("check ./wrong.py:bad")
    assert (done.code, "finite-losses" in done.out) == (1, True)
    assert cli("check ./nosuch.py:bad").code == 2


@pytest.mark.parametrize("name", ["My-Lab", "class", "torch", "", "there"])
def test_names_that_no_package_can_have_and_taken_folders_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError):
        new_project(tmp_path / name if name else "")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.fixture(scope="module")
def with_seeds(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """One seed after the other in this process, as for a notebook's own method: processes take seconds."""
    out = tmp_path_factory.mktemp("seeds") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("raffed.api.many_runs.in_processes", lambda runs: False)
        return raffed.compare(["fedavg"], SEEDED, out=out, seeds=3, progress=False)


def test_every_seed_has_a_result_with_the_bits_of_a_single_run(with_seeds: Comparison) -> None:
    found = with_seeds.seeds["fedavg"]
    assert list(found.results) == [3, 4, 5]
    assert found.failed == {}
    assert found.results[4].hashes == raffed.run(replace(SEEDED, seed=4)).hashes
    assert with_seeds.results["fedavg"].hashes == found.results[3].hashes
    assert sorted(set(found.to_pandas()["seed"])) == [3, 4, 5]


def test_a_mean_over_seeds_has_student_s_interval(with_seeds: Comparison) -> None:
    """With three seeds the factor is t(2) = 4.3027: half = 4.3027 s / √3."""
    found = with_seeds.seeds["fedavg"]
    values = [one.accuracy for one in found.results.values()]
    mean = sum(values) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    assert (found.accuracy.mean, found.accuracy.seeds) == (pytest.approx(mean), 3)
    assert found.accuracy.half == pytest.approx(4.3027 * deviation / math.sqrt(3), rel=1e-4)
    assert str(found.accuracy).endswith("(95 %, 3 seeds)")
    assert with_seeds.report.table["accuracy_last_ci"].iloc[0] == pytest.approx(found.accuracy.half)
    assert str(SeedMean(0.5, math.nan, 2)) == "0.5000 (2 seeds, too few for an interval)"


def test_the_rows_of_a_method_whose_seeds_all_failed_are_none_with_the_usual_columns(
    with_seeds: Comparison,
) -> None:
    rows = SeedResults({}, {3: "the loss of client 3 is nan"}).to_pandas()
    assert list(rows.columns) == list(with_seeds.seeds["fedavg"].to_pandas().columns)
    assert len(rows) == 0


def test_calling_it_again_keeps_what_is_finished(with_seeds: Comparison) -> None:
    folder = with_seeds.seeds["fedavg"].results[3].folder
    assert folder is not None
    before = (folder / "run.json").stat().st_mtime_ns
    again = raffed.compare(["fedavg"], SEEDED, out=folder.parents[1], seeds=3, progress=False)  # in processes
    assert again.seeds["fedavg"].results[3].hashes == with_seeds.seeds["fedavg"].results[3].hashes
    assert (folder / "run.json").stat().st_mtime_ns == before
    other = replace(SEEDED, local=replace(SEEDED.local, lr=0.5))
    with pytest.raises(RunFolderError, match="another configuration"):
        raffed.compare(["fedavg"], other, out=folder.parents[1], seeds=3, progress=False)


def test_the_runs_of_seeds_start_no_further_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without a guard would otherwise start itself again in each of its processes."""
    with pytest.raises(UsageError, match="seed = 2147483648 is outside"):
        seed_runs({"fedavg": replace(SEEDED, seed=2**31 - 1)}, tmp_path, 2)
    monkeypatch.setenv(INSIDE, "1")
    with pytest.raises(UsageError, match="__main__"):
        raffed.compare(["fedavg"], SEEDED, out=tmp_path / "out", seeds=2, progress=False)


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
    return [Run(f"seed {k}", replace(SEEDED, seed=k), folder / f"seed-{k}", {"seed": k}) for k in range(2)]


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


def test_what_others_print_on_the_process_s_stdout_is_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a program that own code starts: its number or JSON is shown like any other text."""
    texts = ["3", '{"a": 1}', "{"]
    program = f"print({chr(10).join(texts)!r})".replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr("raffed.api.many_runs.PROGRAM", program)
    shown = Heard()
    execute_at_once(two_runs(tmp_path)[:1], shown, free=[{}])
    assert shown.events == ["begin 0", *(f"said {text}" for text in texts), "failed 0"]


def test_a_second_stop_ends_a_deaf_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
