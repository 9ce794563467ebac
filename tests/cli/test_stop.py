"""Signals end a run resumably and truthfully; of two commands in one folder the second is refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.api.running import Event
from raffed.cli.screen import LineScreen
from raffed.errors import RunFolderError
from raffed.results import lock
from raffed.results.runfile import read_run, write_json
from raffed.results.sweep_file import read_sweep
from raffed.results.writer import read_metrics
from raffed.runs.run import mark_stopped
from raffed.runtime.ray.session import RaySession
from raffed.runtime.worker import SerialBackend
from raffed.search import ray_tune
from tests.cli.conftest import FEW, Cli
from tests.forging import FEWEST
from tests.live_output import next_line
from tests.runtime.conftest import small

MAP = ["--method", "map", "--rounds", "5", "--local-test", "0.2", *FEW]  # the run of the fixture `finished`


def signal_at(monkeypatch: pytest.MonkeyPatch, number: int, *signals: int) -> None:
    """Have this process signalled while it shows round `number`."""
    shown = LineScreen.on_round

    def show(self: LineScreen, event: Event) -> None:
        shown(self, event)
        if event["round"] == number:
            for one in signals:
                os.kill(os.getpid(), one)

    monkeypatch.setattr(LineScreen, "on_round", show)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGTERM], 143),
        ([signal.SIGINT], 130),
        # The second stops at once: the round's checkpoint is not waited for
        ([signal.SIGINT, signal.SIGINT], 130),
    ],
    ids=["SIGTERM", "Ctrl-C", "Ctrl-C twice"],
)
def test_a_stopped_run_resumes_to_the_bits_of_one_that_was_not(
    cli: Cli, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, signals: list[int], code: int
) -> None:
    out, before = tmp_path / "a run", signal.getsignal(signals[0])
    with monkeypatch.context() as patched:
        signal_at(patched, 3, *signals)
        stopped = cli("run", *MAP, "--out", out)
    assert stopped.code == code
    assert f"raffed resume '{out}'" in stopped.err
    assert signal.getsignal(signals[0]) == before
    about = read_run(out)
    assert (about["state"], about["rounds_done"]) == ("stopped", 3)
    assert set(read_metrics(out)["round"].to_pylist()) == {1, 2, 3}
    resumed = cli("resume", out, "--json")
    assert resumed.code == 0
    assert [event.get("round") for event in resumed.events] == [4, 5, None]
    assert resumed.events[-1]["hashes"] == read_run(finished)["hashes"]


@pytest.mark.parametrize("command", [["run"], ["compare", "--method", "fedavg"]])
def test_a_signal_while_the_run_is_prepared_leaves_nothing_and_says_so(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """What is being loaded may swallow the signal and fail of it."""

    def swallow(*_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise AttributeError("module 'numpy' has no attribute 'nonzero'")

    monkeypatch.setattr("raffed.runs.run.check_names", swallow)
    done = cli(*command, "--rounds", 2, *FEW, "--out", tmp_path / "run")
    assert done == (130, "", "raffed: stopped before anything was written\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("done", [0, 2])
def test_before_a_round_is_done_one_signal_stops_at_once(
    cli: Cli, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Nothing is lost by it, in a new run or in one that goes on."""
    out = tmp_path / "run"
    if done:
        with monkeypatch.context() as patched:
            signal_at(patched, done, signal.SIGTERM)
            cli("run", *MAP, "--out", out)
    with monkeypatch.context() as patched:
        trained = SerialBackend.train

        def train(self: SerialBackend, *args: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            return trained(self, *args)

        patched.setattr(SerialBackend, "train", train)
        stopped = cli("resume", out) if done else cli("run", *MAP, "--out", out)
    assert (stopped.code, f"raffed resume {out}" in stopped.err) == (143, True)
    assert (read_run(out)["state"], read_run(out)["rounds_done"]) == ("stopped", done)
    assert cli("resume", out, "--json").events[-1]["hashes"] == read_run(finished)["hashes"]


def test_the_last_round_ignores_a_signal(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal_at(monkeypatch, 2, signal.SIGTERM)
    done = cli("run", "--rounds", 2, *FEW, "--out", tmp_path / "run")
    assert (done.code, read_run(tmp_path / "run")["state"]) == (0, "finished")


@pytest.mark.parametrize(
    ("rounds", "left"),
    [(3, [("fedavg", 3)]), (2, [])],
    ids=["amid its rounds", "in its last round, which leaves nothing of it"],
)
def test_a_comparison_stops_with_the_run_at_hand_and_says_how_to_go_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, left: list[tuple[str, int]]
) -> None:
    words = [f"compare --method fedavg --method fedrs --rounds {rounds}", *FEW, "--out", tmp_path / "both"]
    with monkeypatch.context() as patched:
        signal_at(patched, 2, signal.SIGTERM)
        stopped = cli(*words)
    assert (stopped.code, "the same command" in stopped.err) == (143, True)
    assert not (tmp_path / "both" / "fedrs").exists()
    done = cli(*words, "--json")
    found = [(event["method"], event["round"]) for event in done.events if event["event"] == "round"]
    assert found == left + [("fedrs", number + 1) for number in range(rounds)]


def test_nohup_is_respected() -> None:
    code = (
        "import os, signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from raffed.cli.signals import StopSignals\n"
        "with StopSignals(lambda: None) as s:\n  os.kill(os.getpid(), signal.SIGHUP)\n  assert s.code == 0\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_signal_before_a_search_stops_it(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaySession, "__enter__", lambda self: self)
    monkeypatch.setattr(RaySession, "__exit__", lambda self, *raised: None)
    monkeypatch.setattr(RaySession, "wait", lambda self: None)
    monkeypatch.setattr(ray_tune, "check_cluster", lambda *_: None)
    monkeypatch.setattr(ray_tune, "execute_sweep", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    done = cli("tune", "--method", "fedavg", "--rounds", "1", "--out", tmp_path / "a")
    assert (done.code, f"raffed tune --resume --out {tmp_path / 'a'}" in done.err) == (143, True)
    assert read_sweep(tmp_path / "a")["state"] == "stopped"


def test_a_second_command_is_refused_and_the_first_process_ends_with_143_at_sigterm(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, lasting = tmp_path / "run", [*MAP, "--rounds", "2000", "--checkpoint-every", "2"]
    monkeypatch.setattr(lock, "PATIENCE", 0.2)
    command = [sys.executable, "-m", "raffed", "run", *lasting, "--json", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = [next_line(process) for _ in range(2)]
        for second in (["resume", out], ["run", *lasting, "--out", out], ["run", *MAP, "--out", out]):
            done = cli(*second)
            assert done.code == 2
            assert f"{out}: it is in use by process {process.pid} on host {socket.gethostname()}" in done.err
            assert "raffed resume" not in done.err
        process.terminate()
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "finishing this round" in errors
    *rounds, last = told + rest.splitlines()
    assert last.startswith('{"event": "stopped"')
    assert (read_run(out)["state"], read_run(out)["rounds_done"]) == ("stopped", len(rounds))
    assert cli("verify", out, "--rounds", "1").code == 0


def test_a_command_that_is_interrupted_says_nothing_of_the_run_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.0)
    run = tmp_path / "run"
    run.mkdir()
    write_json(run / "run.json", FEWEST)
    with lock.held(run):
        mark_stopped(run)
    assert read_run(run)["state"] == "running"
    mark_stopped(run)
    assert read_run(run)["state"] == "stopped"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EROFS])
def test_without_locks_nobody_is_kept_out_but_by_a_disk_that_is_not_written(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refused)
    told = pytest.raises(
        RunFolderError, match=r"\(Read-only file system\); mend that, or choose another folder$"
    )
    with told if code == errno.EROFS else contextlib.nullcontext(), lock.held(tmp_path / "run"):
        assert raffed.run(small(rounds=1), tmp_path / "run").state == "finished"


# Streams that are closed, broken or full: a list that is lost is a failure, and so is a run, which goes on.

RAFFED = f"{sys.executable} -m raffed"
RUN = f"{RAFFED} run --method fedavg --rounds 2 --epochs 1 --split p4c5 --execution serial --out"
SLOW = pytest.mark.slow


def bash(line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        pytest.param(">&- 2>&- <&-", 0, "", marks=SLOW),
        ("| head -1", 1, "raffed: some of the output is lost: Broken pipe\n"),
        pytest.param("--json | head -1", 1, "raffed: some of the output is lost: Broken pipe\n", marks=SLOW),
        pytest.param(">/dev/full 2>&1", 1, "", marks=SLOW),
    ],
)
def test_a_run_whose_streams_are_lost_goes_on(streams: str, code: int, said: str, tmp_path: Path) -> None:
    done = bash(f"{RUN} {tmp_path}/run {streams}")
    assert (done.returncode, done.stderr) == (code, said)
    assert read_run(tmp_path / "run")["state"] == "finished"


@pytest.mark.more
@pytest.mark.parametrize(
    ("streams", "code", "said"), [(">/dev/full", 1, "no space left"), ("| true", 1, ""), (">&-", 0, "")]
)
def test_a_list_that_cannot_be_shown_is_a_failure_in_one_line(streams: str, code: int, said: str) -> None:
    done = bash(f"{RAFFED} splits {streams}")
    assert done.returncode == code
    assert said in done.stderr.lower()
    assert done.stderr.count("\n") == bool(said)
