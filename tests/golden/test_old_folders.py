"""A sweep, a reproduction with its study, and a run on Ray that the commit c8bc120 left: they are read,
reported, continued and verified.

`old_folders/README.md` says how they were made. As in test_old_runs.py, nothing that was trained here is
compared with what was trained there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.studies import load_study

import raffed
from raffed import Runtime
from raffed.experiments.folder import run_config
from raffed.experiments.tuning.folder import stored_request
from raffed.experiments.verify import verify
from raffed.results.runfile import read_run
from raffed.results.sweep_file import read_sweep
from raffed.results.writer import read_metrics
from tests.cli.conftest import Cli

OLD = Path(__file__).with_name("old_folders")
RUN, FINISHED, STOPPED, REPRODUCED = (
    OLD / name for name in ("ray-run", "sweep-finished", "sweep-stopped", "reproduced")
)
STUDY = REPRODUCED / "runs/smoke/study-averaged_classifiers-s0"
LARGEST = 80_000  # bytes of one folder


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an old folder, to work on."""
    return Path(shutil.copytree(request.param, tmp_path / "copy"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_the_folders_are_small() -> None:
    sizes = {
        path.name: sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        for path in (RUN, FINISHED, STOPPED, REPRODUCED)
    }
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}


@pytest.mark.parametrize("sweep", [FINISHED, STOPPED], ids=lambda path: path.name)
def test_an_old_sweep_is_read_with_its_request_its_trials_and_their_runs(sweep: Path) -> None:
    about, request = read_sweep(sweep), stored_request(sweep)
    assert (request.methods, dict(request.grid)) == (("fedprox",), {"mu": [0.01, 0.1]})
    assert about["state"] == {FINISHED: "finished", STOPPED: "stopped"}[sweep]
    for folder in (path.parent for path in sweep.rglob("run.json")):
        assert run_config(folder).identity() == read_run(folder)["identity"]


def test_a_report_on_an_old_sweep_has_its_choice_and_nothing_unreadable(tmp_path: Path, cli: Cli) -> None:
    done = cli("report", FINISHED, "--out", tmp_path / "report")
    assert (done.code, done.err) == (0, "")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    chosen = read_sweep(FINISHED)["methods"]["fedprox"]["chosen"]
    assert chosen is not None
    assert f"mu={chosen['settings']['mu']}" in page.replace(" = ", "=")
    assert dict(load_runs(FINISHED).unreadable) == {}


@pytest.mark.slow
@pytest.mark.parametrize("copy", [FINISHED], indirect=True)
def test_an_old_sweep_that_is_finished_stays_as_it_is_when_it_is_resumed(copy: Path, cli: Cli) -> None:
    before = files(copy)
    done = cli("tune", "--resume", "--out", copy, "--execution", "serial")
    assert done.code == 0, done.err
    after = files(copy)
    assert {
        name for name in before if name.rpartition("/")[2] == "run.json" and after[name] != before[name]
    } == set()
    assert read_sweep(copy)["methods"] == read_sweep(FINISHED)["methods"]


@pytest.mark.slow
@pytest.mark.parametrize("copy", [STOPPED], indirect=True)
def test_an_old_sweep_that_was_stopped_goes_on_to_its_end(copy: Path, cli: Cli) -> None:
    known = [
        one["name"]
        for one in read_sweep(STOPPED)["methods"]["fedprox"]["trials"]
        if one["state"] == "finished"
    ]
    assert known
    begun = {name: (copy / f"fedprox/trials/{name}/run.json").read_bytes() for name in known}
    done = cli("tune", "--resume", "--out", copy, "--execution", "serial")
    assert done.code == 0, done.err
    about = read_sweep(copy)
    assert about["state"] == "finished"
    assert {one["state"] for one in about["methods"]["fedprox"]["trials"]} == {"finished"}
    assert {name: (copy / f"fedprox/trials/{name}/run.json").read_bytes() for name in known} == begun


def test_an_old_study_is_read_with_its_values_and_its_claim() -> None:
    study = load_study(STUDY)
    about = json.loads((STUDY / "study.json").read_text())
    assert study.about["name"] == about["name"] == "averaged_classifiers"
    assert len(study.values)


@pytest.mark.parametrize("copy", [REPRODUCED], indirect=True)
def test_an_old_reproduction_is_reported_and_its_study_is_not_made_again(copy: Path, cli: Cli) -> None:
    before = (copy / STUDY.relative_to(REPRODUCED) / "study.json").read_bytes()
    done = cli("reproduce", "fedmr/fig2", "--out", copy)
    assert done.code == 0, done.err
    assert (copy / STUDY.relative_to(REPRODUCED) / "study.json").read_bytes() == before
    assert "| 45.000° | yes |" in (copy / "fedmr/fig2/smoke/table.md").read_text()
    done = cli("report", copy, "--out", copy.parent / "report")
    assert (done.code, done.err) == (0, "")
    assert "second row is 45°" in (copy.parent / "report" / "report.html").read_text()


def test_an_old_run_on_ray_is_read_and_reported(tmp_path: Path, cli: Cli) -> None:
    about = read_run(RUN)
    assert run_config(RUN).identity() == about["identity"]
    assert run_config(RUN).runtime.execution == "ray"
    assert about["placement"]["execution"] == "ray"
    assert set(read_metrics(RUN)["round"].to_pylist()) == {1, 2, 3}
    done = cli("report", RUN, "--out", tmp_path / "report")
    assert (done.code, done.err) == (0, "")
    assert "scaffold" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("copy", [RUN], indirect=True)
def test_an_old_run_on_ray_is_returned_by_resume_and_verified_in_one_process(copy: Path) -> None:
    result = raffed.resume(copy)
    assert (result.state, result.hashes) == ("finished", read_run(RUN)["hashes"])
    certificate = verify(copy, rounds=3)
    assert certificate.rounds == (1, 2, 3)
    assert [check.what for check in certificate.checks if check.round is None and not check.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["serial", "ray"])
@pytest.mark.parametrize("copy", [RUN], indirect=True)
def test_an_old_run_on_ray_that_is_set_back_to_its_checkpoint_goes_on(copy: Path, execution: str) -> None:
    """The folder holds the checkpoint of the last round: the run is as if killed before it was finished."""
    about = json.loads((copy / "run.json").read_text())
    for name in ("hashes", "round_hashes"):
        del about[name]
    (copy / "run.json").write_text(json.dumps({**about, "state": "running"}))
    (copy / "final.safetensors").unlink()
    result = raffed.resume(copy, runtime=Runtime(execution=execution))
    assert (result.state, result.hashes) == ("finished", read_run(RUN)["hashes"])
