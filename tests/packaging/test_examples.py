"""The projects in examples/, beside the installed wheel: the commands of their READMEs run as they stand."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.packaging.conftest import ROOT, CleanEnvironment, environment

EXAMPLES = ("own_method", "own_data", "own_model")
ON_RAY = re.compile(r"^raffed run experiments/base\.toml --out (runs/\w+)$", re.MULTILINE)


def commands(name: str) -> list[str]:
    """The shell commands of an example's README, in order."""
    text = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


class Shell:
    """Commands typed in a project's folder, where the environment with the wheel is active."""

    def __init__(self, clean: CleanEnvironment, project: Path) -> None:
        settings = {**clean.variables, "COLUMNS": "200", "RAFFED_CACHE": str(project / "cache")}
        self._how = {"cwd": project, "env": settings, "text": True}

    def start(self, line: str) -> subprocess.Popen[str]:
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(["bash", "-c", f"exec {line}"], **out, **self._how)

    def type(self, line: str) -> str:
        """Execute a command that must succeed, and return what it prints."""
        process = self.start(line)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, f"{line}: {said}"
        assert "Traceback" not in said
        return said


def stopped(shell: Shell, line: str, run: Path) -> None:
    """Start a run, and stop the command after the first checkpoint."""
    process, until = shell.start(line), time.monotonic() + 240
    while not list(run.glob("checkpoints/round-*")):
        assert process.poll() is None, f"it ended: {process.communicate()[0]}"
        assert time.monotonic() < until, "it is too slow"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert read_run(run)["state"] == "stopped", said


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_commands_of_an_example_s_readme_run_as_written(name: str, wheel: Path, tmp_path: Path) -> None:
    """The run on Ray is stopped, and `raffed resume` ends in the bits of one that nobody disturbed."""
    project = Path(shutil.copytree(ROOT / "examples" / name, tmp_path / name))
    shell, said = Shell(environment(tmp_path, wheel), project), dict[str, str]()
    for line in commands(name):
        if found := ON_RAY.match(line):
            run = project / found[1]
            stopped(shell, line, run)
        else:
            said[line] = shell.type(line)
    shell.type("raffed run experiments/base.toml --execution serial --quiet --out runs/serial")
    assert read_run(run)["hashes"] == read_run(project / "runs" / "serial")["hashes"]
    assert (project / "report" / "report.html").stat().st_size > 10_000
    assert "passed" in said["pytest"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_on_two_actors_resumes_verifies_tunes_and_reports(name: str) -> None:
    lines = commands(name)
    assert len([line for line in lines if ON_RAY.match(line)]) == 1
    assert "actors = 2" in (ROOT / "examples" / name / "experiments" / "base.toml").read_text()
    words = {" ".join(line.split()[:2]) for line in lines if line.startswith("raffed")}
    assert words >= {f"raffed {one}" for one in ("check", "run", "resume", "verify", "tune", "report")}
    [grid] = [line for line in lines if line.startswith("raffed tune")]
    assert re.search(r"--grid [\w.]+=[\d.]+,[\d.]+ ", grid)  # two trials
