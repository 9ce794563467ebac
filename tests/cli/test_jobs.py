"""`raffed jobs`, `logs` and `stop`, with Ray's job client replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus

from raffed.runtime.ray import jobs
from tests.cli.conftest import Cli


class Server:
    """A job server with two jobs, of which one runs."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.jobs = {
            "raysubmit_old": SimpleNamespace(
                submission_id="raysubmit_old",
                status=JobStatus.FAILED,
                entrypoint="python -m raffed run",
                start_time=1_000_000,
                end_time=1_065_000,
                driver_exit_code=3,
                message="it failed",
            ),
            "raysubmit_new": SimpleNamespace(
                submission_id="raysubmit_new",
                status=JobStatus.RUNNING,
                entrypoint="python -m raffed tune",
                start_time=2_000_000,
                end_time=None,
            ),
        }

    def __call__(self, address: str | None) -> Server:
        return self

    def get_address(self) -> str:
        return "http://127.0.0.1:8265"

    def list_jobs(self) -> list[SimpleNamespace]:
        driver = SimpleNamespace(submission_id=None)  # a driver that nobody submitted
        return [driver, *self.jobs.values()]

    def get_job_status(self, name: str) -> JobStatus:
        return JobStatus(self.jobs[name].status)

    def get_job_info(self, name: str) -> SimpleNamespace:
        return self.jobs[name]

    def get_job_logs(self, name: str) -> str:
        return f"log of {name}\n"

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        yield f"log of {name}\n"

    def stop_job(self, name: str) -> bool:
        self.stopped.append(name)
        return True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(jobs, "JobSubmissionClient", made)
    return made


def test_jobs_are_listed_the_newest_first_with_the_time_they_took(cli: Cli, server: Server) -> None:
    done = cli("jobs")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines() if "raysubmit" in line]
    assert [line[0] for line in lines] == ["raysubmit_new", "raysubmit_old"]
    assert lines[1][1:3] == ["failed", "1:05"]
    server.jobs.clear()
    assert cli("jobs").out == "no job was submitted to this cluster\n"


def test_a_log_is_printed_or_followed_to_the_job_s_exit_code(cli: Cli, server: Server) -> None:
    done = cli("logs", "raysubmit_old")
    assert (done.code, done.out) == (0, "log of raysubmit_old\n")
    done = cli("logs", "--follow", "raysubmit_old")
    assert (done.code, done.out) == (3, "log of raysubmit_old\n")
    assert "exit code 3" in done.err


def test_a_job_is_stopped_once_and_one_that_has_ended_is_left(cli: Cli, server: Server) -> None:
    done = cli("stop", "raysubmit_new")
    assert (done.code, done.err) == (0, "raffed: job raysubmit_new was asked to stop\n")
    done = cli("stop", "raysubmit_old")
    assert (done.code, done.err) == (0, "raffed: job raysubmit_old had ended already\n")
    assert server.stopped == ["raysubmit_new"]


@pytest.mark.parametrize("command", ["logs", "stop"])
def test_a_job_that_is_not_there_is_refused_with_the_nearest(command: str, cli: Cli, server: Server) -> None:
    done = cli(command, "raysubmit_nex")
    assert done.code == 2
    assert "unknown job 'raysubmit_nex'; nearest: raysubmit_new" in done.err
    assert server.stopped == []


@pytest.mark.parametrize("words", [["jobs"], ["logs", "a"], ["stop", "a"]])
def test_without_the_token_one_short_line_says_where_to_put_it(
    words: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(address: str | None) -> None:
        raise AuthenticationError("Token authentication is enabled but …\n" * 12)

    monkeypatch.setattr(jobs, "JobSubmissionClient", refuses)
    done = cli(*words, "--address", "http://127.0.0.1:1")
    assert done.code == 2
    assert done.err == (
        "raffed: the Ray job server at http://127.0.0.1:1 needs a token, and none, or another one, was sent: "
        "put its file's path into RAY_AUTH_TOKEN_PATH\n"
    )
