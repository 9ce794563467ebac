"""Two commands in one folder: the second is refused and told by whom, the first goes on; what was killed
holds nobody up.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import RunFolderError
from raffed.results import lock, read_run
from raffed.results.runfile import write_json
from raffed.runs.run import mark_interrupted
from tests.cli.conftest import QUICK, Cli
from tests.forging import FEWEST
from tests.live_output import lines
from tests.runtime.conftest import small

MAP = ["--method", "map", "--local-test", "0.2", "--checkpoint-every", "2", *QUICK]
FIVE = [*MAP, "--rounds", "5"]  # the run of the fixture `finished`


@contextmanager
def live(*argv: object, until: int) -> Iterator[subprocess.Popen[str]]:
    """A command of raffed in a process of its own, once it has told of round `until`."""
    command = [sys.executable, "-m", "raffed", *map(str, argv), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in lines(process):
            if json.loads(line).get("round", 0) >= until:
                break
        try:
            yield process
        finally:
            process.kill()


def test_a_second_command_in_the_folder_of_a_run_at_work_is_refused_and_the_first_goes_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(lock, "PATIENCE", 0.2)
    with live("run", *MAP, "--rounds", "2000", "--out", out, until=2) as process:
        for second in (
            ["resume", out],
            ["run", *MAP, "--rounds", "2000", "--out", out],
            ["run", *FIVE, "--out", out],
        ):
            done = cli(*second)
            assert done.code == 2
            assert f"{out}: it is in use by process {process.pid} on host {socket.gethostname()}" in done.err
            assert "raffed resume" not in done.err
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 143
    assert read_run(out)["state"] == "stopped"
    assert cli("verify", out, "--rounds", "1").code == 0


@pytest.mark.more
def test_a_run_that_was_killed_is_resumed_at_once(cli: Cli, tmp_path: Path, finished: Path) -> None:
    with live("run", *FIVE, "--out", tmp_path / "run", until=2) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        again = cli("run", *FIVE, "--out", tmp_path / "run")
        assert again.code == 2
        assert re.search(
            r"\(running\); if nothing works on it any more, `raffed resume .*` continues it", again.err
        )
        assert cli("resume", tmp_path / "run", "--json").events[-1]["hashes"] == read_run(finished)["hashes"]


@pytest.mark.slow
def test_a_run_on_ray_whose_command_was_killed_is_resumed_once_its_actors_are_gone(
    tmp_path: Path, finished: Path
) -> None:
    """They live on for a second or two; meanwhile `resume` waits, and tells nobody of a run in use."""
    on_ray, out = [*FIVE[:-2], "--rounds", "5", "--execution", "ray", "--actors", "2"], tmp_path / "run"
    with live("run", *on_ray, "--out", out, until=1) as process:
        process.kill()
        process.wait()
        command = [sys.executable, "-m", "raffed", "resume", str(out), "--quiet"]
        assert subprocess.run(command, check=False, timeout=120).returncode == 0
    assert read_run(out)["hashes"] == read_run(finished)["hashes"]


@pytest.mark.more
def test_of_two_commands_that_begin_at_the_same_moment_one_does_the_run_and_the_other_says_so(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "raffed", "run", *FIVE, "--quiet", "--out", str(tmp_path / "run")]
    both = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = {process.communicate(timeout=120)[1]: process.returncode for process in both}
    assert sorted(told.values()) == [0, 2]
    (refusal,) = (text for text, code in told.items() if code == 2)
    assert re.fullmatch(r"raffed: .*(in use by process|already holds a run).*\n", refusal)
    assert read_run(tmp_path / "run")["state"] == "finished"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.0)


@pytest.mark.usefixtures("impatient")
def test_whoever_comes_second_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    with lock.held(tmp_path / "run", "process 7 on host h"):
        with pytest.raises(RunFolderError, match="in use by process 7 on host h"):
            raffed.run(small(), tmp_path / "run")
        assert [one.name for one in (tmp_path / "run").iterdir()] == [lock.LOCK_FILE]
        assert (tmp_path / "run" / lock.LOCK_FILE).read_text() == "process 7 on host h"
    assert raffed.run(small(rounds=1), tmp_path / "run").state == "finished"


@pytest.mark.usefixtures("impatient")
def test_a_command_that_is_interrupted_says_nothing_of_the_run_of_another(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_json(run / "run.json", FEWEST)
    with lock.held(run):
        mark_interrupted(run)
    assert read_run(run)["state"] == "running"
    mark_interrupted(run)
    assert read_run(run)["state"] == "stopped"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_on_a_file_system_without_locks_nobody_is_kept_out(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refused)
    with lock.held(tmp_path / "run"):
        assert raffed.run(small(rounds=1), tmp_path / "run").state == "finished"
