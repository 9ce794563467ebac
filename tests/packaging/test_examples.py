"""The projects in examples/, beside the installed wheel: the commands of their READMEs run as they stand.

Each trains on Ray with two actors. One of these is killed, the command is then stopped, and `raffed resume`
ends in the bits of a run that nobody disturbed.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from raffed.results.runfile import read_run
from tests.packaging.clean import ROOT, CleanEnvironment, environment

EXAMPLES = ("own_method", "own_data", "own_model")
ON_RAY = re.compile(r"^raffed run experiments/base\.toml --out (runs/\w+)$", re.MULTILINE)
PATIENCE = 240.0  # seconds until a round must have ended on a busy machine


def commands(project: Path) -> list[str]:
    """The shell commands of a README, in order."""
    text = (project / "README.md").read_text(encoding="utf-8")
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


class Shell:
    """Commands typed in a project's folder, where the environment with the wheel is active."""

    def __init__(self, clean: CleanEnvironment, project: Path) -> None:
        self.project, self.settings = project, {**clean.variables, "COLUMNS": "200"}
        self.settings["RAFFED_CACHE"] = str(project / "cache")

    def start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.project,
            env=self.settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, line: str) -> str:
        """Execute a command that must succeed, and return what it prints."""
        process = self.start(line)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, f"{line}: {said}"
        assert "Traceback" not in said
        return said


def wait_for(found: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while not found():
        assert process.poll() is None, f"it ended: {process.communicate()[0]}"
        assert time.monotonic() < until, "it is too slow"
        time.sleep(0.05)


def checkpoint(run: Path) -> int:
    """The last round of which a run has a checkpoint; 0 before."""
    return max((int(one.name.rpartition("-")[2]) for one in run.glob("checkpoints/round-*")), default=0)


def client_actors(process: subprocess.Popen[str]) -> list[psutil.Process]:
    everyone = psutil.Process(process.pid).children(recursive=True)
    return [one for one in everyone if "ClientActor" in " ".join(one.cmdline()[:1])]


def disturbed(shell: Shell, line: str, run: Path) -> None:
    """Start a run, kill an actor after the first checkpoint, and stop the command after another one."""
    process = shell.start(line)
    wait_for(lambda: checkpoint(run) > 0, process)
    actors = client_actors(process)
    assert len(actors) == 2
    actors[0].kill()
    reached = checkpoint(run)
    wait_for(lambda: checkpoint(run) > reached, process)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert read_run(run)["state"] == "stopped", said


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / request.param, tmp_path / request.param))


@pytest.mark.slow
@pytest.mark.parametrize("project", EXAMPLES, indirect=True)
def test_the_commands_of_an_example_s_readme_run_as_written(
    project: Path, wheel: Path, tmp_path: Path
) -> None:
    shell = Shell(environment(tmp_path, wheel), project)
    said: dict[str, str] = {}
    for line in commands(project):
        found = ON_RAY.match(line)
        if found:
            disturbed(shell, line, project / found[1])
        else:
            said[line] = shell.type(line)
    [run] = [found[1] for found in map(ON_RAY.match, commands(project)) if found]
    shell.type("raffed run experiments/base.toml --execution serial --quiet --out runs/serial")
    assert read_run(project / run)["hashes"] == read_run(project / "runs" / "serial")["hashes"]
    assert (project / "report" / "report.html").stat().st_size > 10_000
    assert "passed" in said["pytest"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_on_two_actors_resumes_verifies_tunes_and_reports(name: str) -> None:
    lines = commands(ROOT / "examples" / name)
    assert len([line for line in lines if ON_RAY.match(line)]) == 1
    assert "actors = 2" in (ROOT / "examples" / name / "experiments" / "base.toml").read_text()
    words = {" ".join(line.split()[:2]) for line in lines if line.startswith("raffed")}
    assert words >= {f"raffed {one}" for one in ("check", "run", "resume", "verify", "tune", "report")}
    [grid] = [line for line in lines if line.startswith("raffed tune")]
    assert re.search(r"--grid [\w.]+=[\d.]+,[\d.]+ ", grid)  # two trials
