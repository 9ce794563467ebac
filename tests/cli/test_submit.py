"""`raffed submit`, `jobs`, `logs` and `stop`, with Ray's job client replaced: what is refused at home, what
travels, and which exit code comes back.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus

from raffed.own import gate
from raffed.runtime.ray import jobs
from raffed.runtime.ray.jobs import JobOrder, Jobs
from tests.cli.conftest import Cli

OUT = ["--out", "s3://bucket/runs/a"]


def packed_by_ray(folder: str, excludes: list[str], target: Path) -> dict[str, str]:
    """Return what Ray's own packaging sends of a folder: path → text."""
    from ray._private.runtime_env.packaging import create_package

    create_package(folder, target, include_gitignore=True, excludes=excludes)
    with zipfile.ZipFile(target) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        return {name: archive.read(name).decode() for name in names}


def job(name: str, status: JobStatus, start: int, end: int | None, code: int | None) -> SimpleNamespace:
    about = {"submission_id": name, "status": status, "start_time": start, "end_time": end}
    return SimpleNamespace(entrypoint="python -m raffed", driver_exit_code=code, message="failed", **about)


class Server:
    """A job server with two jobs, of which one runs, that takes another one with the log and end given."""

    def __init__(self, scratch: Path) -> None:
        self.status, self.code, self.logs = JobStatus.SUCCEEDED, 0, [("hello\n",)]
        self.taken: dict[str, Any] = {}
        self.travelled: dict[str, str] = {}
        self.stopped: list[str] = []
        self.scratch = scratch
        self.jobs = {
            "raysubmit_old": job("raysubmit_old", JobStatus.FAILED, 1_000_000, 1_065_000, 3),
            "raysubmit_new": job("raysubmit_new", JobStatus.RUNNING, 2_000_000, None, None),
        }

    def __call__(self, address: str | None) -> Server:
        return self

    def get_address(self) -> str:
        return "http://127.0.0.1:8265"

    def submit_job(self, **given: Any) -> str:
        self.taken, environment = given, given["runtime_env"]
        if "working_dir" in environment:
            package = self.scratch / f"{len(list(self.scratch.iterdir()))}.zip"
            self.travelled = packed_by_ray(environment["working_dir"], environment["excludes"], package)
        return given["submission_id"] or "raysubmit_1"

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        for text in self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]:
            if isinstance(text, BaseException):
                raise text
            yield text

    def list_jobs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(submission_id=None), *self.jobs.values()]  # a driver that nobody submitted

    def get_job_info(self, name: str) -> SimpleNamespace:
        return self.jobs.get(name) or job(name, self.status, 0, None, self.code)

    def get_job_status(self, name: str) -> JobStatus:
        return self.get_job_info(name).status

    def get_job_logs(self, name: str) -> str:
        return "".join(self.logs[0])

    def stop_job(self, name: str) -> bool:
        self.stopped.append(name)
        return True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Server:
    async def no_sleep(seconds: float) -> None:
        return None

    made = Server(tmp_path_factory.mktemp("server"))
    monkeypatch.setattr(jobs, "JobSubmissionClient", made)
    monkeypatch.setattr(jobs.asyncio, "sleep", no_sleep)
    return made


def test_the_job_is_the_command_on_the_ray_of_its_cluster(cli: Cli, server: Server) -> None:
    words = ("submit --python /opt/py --no-wait run --method map --split incomplete:20", *OUT)
    assert cli(words[0].replace("--no-wait", "--dry-run"), *OUT).code == 0
    assert server.taken == {}
    done = cli(*words)
    assert (done.code, done.out, "raffed logs --follow" in done.err) == (0, "", True)
    assert server.taken["entrypoint"] == (
        "/opt/py -P -m raffed run --method map --split incomplete:20 --out s3://bucket/runs/a --address auto"
    )
    assert "working_dir" not in server.taken["runtime_env"]
    assert cli("submit run", *OUT, "--address", "10.0.0.1:6379").out == "hello\n"
    assert server.taken["entrypoint"].count("--address") == 1


@pytest.mark.parametrize(
    ("status", "returned", "code"),
    [
        (JobStatus.SUCCEEDED, 0, 0),
        (JobStatus.FAILED, 2, 2),
        (JobStatus.FAILED, None, 1),
        (JobStatus.FAILED, 0, 1),
        (JobStatus.FAILED, -9, 137),
        (JobStatus.STOPPED, None, 143),
    ],
)
def test_the_exit_code_is_the_job_s(
    cli: Cli, server: Server, status: JobStatus, returned: int | None, code: int
) -> None:
    server.status, server.code = status, returned
    done = cli("submit run", *OUT)
    assert (done.code, "succeeded" in done.err) == (code, code == 0)


def test_ctrl_c_leaves_the_job_and_says_how_to_go_on(cli: Cli, server: Server) -> None:
    server.logs = [("one\n", KeyboardInterrupt())]
    done = cli("submit --id mine run", *OUT)
    assert (done.code, done.out) == (130, "one\n")
    for command in ("logs --follow", "stop"):
        assert f"raffed {command} --address http://127.0.0.1:8265 mine" in done.err


def test_a_lost_connection_is_taken_up_again_without_telling_anything_twice(server: Server) -> None:
    server.logs = [("one\n", "two\n", RuntimeError("closed")), ("one\ntw", "o\nthree\n")]
    said: list[str] = []
    assert Jobs(None).follow("a", said.append) == 0
    assert "".join(said) == "one\ntwo\nthree\n"


def test_a_job_goes_on_with_code_that_its_user_has_trusted(
    cli: Cli, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is another process with another home, in which a run.json names the code."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("VALUE = 5\n")
    gate.trust([hashlib.sha256(b"VALUE = 5\n").hexdigest()])
    assert cli("submit resume s3://bucket/runs/a").code == 0
    handed = server.taken["runtime_env"]["env_vars"]
    reads = "from raffed.own import gate; gate.note_read('./own.py:VALUE'); gate.check('./own.py:VALUE')"
    for given, code in (({}, 1), (handed, 0)):
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "there"), **given}
        done = subprocess.run([sys.executable, "-c", reads], env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert ("UntrustedCodeError" in done.stderr) == (code == 1)


def test_a_toml_file_travels_alone_and_a_folder_without_data_keys_and_links(
    cli: Cli, server: Server, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    (code / "pkg").mkdir(parents=True)
    (code / ".git").mkdir()
    (code / "exp.toml").write_text('method = "map"\n')
    (code / "pkg" / "own.py").write_text("x = 1\n")
    for name in ("big.npz", ".env.local", "id_rsa", "pkg/server.pem", ".git/config"):
        (code / name).write_text("x")
    (code / "pkg" / "[all]").symlink_to(tmp_path)
    assert cli("submit run", code / "exp.toml", *OUT).code == 0
    assert server.travelled == {"exp.toml": 'method = "map"\n'}
    assert " run exp.toml --out" in server.taken["entrypoint"]
    done = cli("submit --env RAFFED_DATA=/data --working-dir", code, "run", code / "exp.toml", *OUT)
    assert done.code == 0, done.err
    assert server.travelled == {"exp.toml": 'method = "map"\n', "pkg/own.py": "x = 1\n"}
    assert server.taken["runtime_env"]["env_vars"]["RAFFED_DATA"] == "/data"
    assert "with 2 files, 21 bytes" in done.err  # 15 of the TOML file and 6 of own.py


def test_much_is_sent_only_with_yes(cli: Cli, server: Server, tmp_path: Path) -> None:
    with open(tmp_path / "a.txt", "wb") as file:
        file.truncate(60_000_000)
    words = ["--no-wait", "--working-dir", tmp_path, "run", *OUT]
    done = cli("submit", *words)
    assert (done.code, server.taken) == (2, {})
    assert "60.0 MB would be sent, more than 50 MB" in done.err
    assert cli("submit --yes", *words).code == 0
    assert list(server.travelled) == ["a.txt"]


REFUSED = {
    "run": "shared storage",
    "resume runs/a": "shared storage",
    "run --out s3://KEY:verysecret@bucket/a": "credentials",
    "--address http://me:verysecret@head:8265 run --out s3://b/a": "credentials",
    "--env TOKEN:verysecret run --out s3://b/a": "NAME=VALUE",
    "run --method fedmx --out s3://b/a": "fedmr",
    "run --rouns 3 --out s3://b/a": "--rounds",
    "doctor": "unknown command to submit",
    "--working-dir {here}/inside run {here}/exp.toml --out s3://b/a": "would not be sent",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_what_cannot_work_stays_home(cli: Cli, server: Server, tmp_path: Path, typed: str) -> None:
    (tmp_path / "exp.toml").write_text('method = "map"\n')
    (tmp_path / "inside").mkdir()
    done = cli(f"submit {typed.format(here=tmp_path)}")
    assert (done.code, server.taken) == (2, {})
    assert REFUSED[typed] in done.err
    assert "verysecret" not in done.out + done.err


def test_a_token_is_asked_for_in_one_line_and_is_in_no_job_s_environment(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard shows a job's environment to everybody who may look."""

    def refuses(address: str | None) -> None:
        raise AuthenticationError("Token authentication is enabled but …\n" * 12)

    monkeypatch.setattr(jobs, "JobSubmissionClient", refuses)
    for command in ("jobs", "logs a", "stop a"):
        done = cli(f"{command} --address http://127.0.0.1:1")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "RAY_AUTH_TOKEN_PATH" in done.err
    monkeypatch.setenv("RAY_AUTH_TOKEN", "verysecret")
    assert "verysecret" not in str(JobOrder(["python"]).runtime_env())


def test_jobs_are_listed_followed_and_stopped(cli: Cli, server: Server) -> None:
    lines = [line.split() for line in cli("jobs").out.splitlines() if "raysubmit" in line]
    assert [line[0] for line in lines] == ["raysubmit_new", "raysubmit_old"]
    assert lines[1][1:3] == ["failed", "1:05"]
    assert cli("logs raysubmit_old")[:2] == (0, "hello\n")
    assert cli("logs --follow raysubmit_old")[:2] == (3, "hello\n")  # the job's exit code
    assert cli("stop raysubmit_new").err == "raffed: job raysubmit_new was asked to stop\n"
    assert cli("stop raysubmit_old").err == "raffed: job raysubmit_old had ended already\n"
    assert server.stopped == ["raysubmit_new"]
    for command in ("logs", "stop"):
        done = cli(f"{command} raysubmit_nex")
        assert (done.code, "nearest: raysubmit_new" in done.err) == (2, True)
    server.jobs.clear()
    assert cli("jobs").out == "no job was submitted to this cluster\n"
