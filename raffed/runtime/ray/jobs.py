"""A command as a job of a running Ray cluster: submit it, follow its log, and end with its exit code.

Ray's own client takes the token from RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token. It is never
read here.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ray.exceptions import AuthenticationError, RayError
from ray.job_submission import JobStatus, JobSubmissionClient

from raffed.config.validation import Json
from raffed.errors import RaffedError, UsageError, check_choice

ENVIRONMENT = "runtime_env.yaml"
RECONNECTS = 20  # lost connections to the log that are tolerated, at first a second apart
STOPPED = 143
T = TypeVar("T")
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@dataclass(frozen=True)
class JobOrder:
    """A job to be submitted.

    Attributes:
        words: The command.
        folder: What becomes the job's working folder. Ray packs it.
        excludes: Patterns of what Ray leaves out of it.
        env: Environment variables of the job. The dashboard shows them, so they must not hold secrets.
    """

    words: Sequence[str]
    folder: Path | None = None
    excludes: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None

    def runtime_env(self) -> dict[str, Json]:
        """Return the runtime environment of cluster/runtime_env.yaml with this job's folder and variables."""
        settings = environment()
        settings.pop("excludes", None)
        if self.folder is not None:
            settings.update(working_dir=str(self.folder), excludes=list(self.excludes))
        given = settings.get("env_vars")
        settings["env_vars"] = {**(given if isinstance(given, dict) else {}), **self.env}
        return settings


def environment() -> dict[str, Json]:
    """Return the contents of cluster/runtime_env.yaml."""
    import importlib.resources

    import yaml

    text = (importlib.resources.files("raffed.cluster") / ENVIRONMENT).read_text(encoding="utf-8")
    contents: dict[str, Json] = yaml.safe_load(text)
    return contents


def excluded() -> list[str]:
    """Return the patterns of what stays here of a folder: data, results, caches and what looks like a key."""
    patterns = environment()["excludes"]
    return [str(pattern) for pattern in patterns] if isinstance(patterns, list) else []


@dataclass(frozen=True)
class KnownJob:
    """A job of the cluster.

    Attributes:
        name: Its id.
        state: pending, running, succeeded, failed or stopped.
        command: Its command, in one line.
        began: When it began, in seconds since 1970; 0 if it has not begun.
        ended: When it ended; 0 if it has not ended.
    """

    name: str
    state: str
    command: str
    began: float
    ended: float


class Jobs:
    """The job server of a cluster.

    Raises:
        UsageError: There is no job server, or it refuses the token.
    """

    def __init__(self, address: str | None) -> None:
        if any(name in os.environ for name in TOKENS):
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # otherwise Ray's client sends no token
        try:
            self._client = JobSubmissionClient(address)
        except (ConnectionError, RayError, RuntimeError, ValueError) as error:
            place = address or "the default address"
            if _is_refused(error):
                raise UsageError(
                    f"the Ray job server at {place} needs a token, and none, or another one, was sent: put "
                    f"its file's path into RAY_AUTH_TOKEN_PATH"
                ) from error
            raise UsageError(
                f"no Ray job server at {place} takes this request "
                f"({_line(error)}); is the cluster "
                "up, its dashboard reachable (ssh -L 8265:localhost:8265 HEAD), and the token in "
                "RAY_AUTH_TOKEN_PATH?"
            ) from error
        self.address: str = self._client.get_address()

    def submit(self, order: JobOrder) -> str:
        """Submit a job and return its id."""
        try:
            return str(
                self._client.submit_job(
                    entrypoint=shlex.join(order.words),
                    runtime_env=order.runtime_env(),
                    submission_id=order.name,
                )
            )
        except (RayError, RuntimeError, ValueError, OSError) as error:
            raise UsageError(f"{self.address} refused the job ({_line(error)})") from error

    def listed(self) -> list[KnownJob]:
        """Return the jobs that were submitted, the newest first."""
        details = self._asked(self._client.list_jobs)
        jobs = [
            KnownJob(
                str(job.submission_id),
                str(job.status.value).lower(),
                " ".join(str(job.entrypoint).split()),
                (job.start_time or 0) / 1000,
                (job.end_time or 0) / 1000,
            )
            for job in details
            if job.submission_id
        ]
        return sorted(jobs, key=lambda job: -job.began)

    def log(self, name: str) -> str:
        """Return what a job has printed so far."""
        self.check_known(name)
        return str(self._asked(lambda: self._client.get_job_logs(name)))

    def stop(self, name: str) -> bool:
        """Ask a job to stop. Return False if it had ended already."""
        self.check_known(name)
        if self._asked(lambda: self._client.get_job_status(name)).is_terminal():
            return False
        return bool(self._asked(lambda: self._client.stop_job(name)))

    def check_known(self, name: str) -> None:
        """Refuse the id of a job that was never submitted.

        Raises:
            UnknownNameError: There is no such job. The message names similar ones.
        """
        check_choice("job", name, [job.name for job in self.listed()])

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except (RayError, RuntimeError, ValueError, OSError) as error:
            raise UsageError(f"{self.address} refused the request ({_line(error)})") from error

    def follow(self, name: str, say: Callable[[str], None]) -> int:
        """Pass the job's log to `say` until the job ends, and return its exit code.

        A lost connection is opened again.
        """
        return asyncio.run(self._follow(name, say))

    async def _follow(self, name: str, say: Callable[[str], None]) -> int:
        said = 0
        for attempt in range(RECONNECTS + 1):
            try:
                at = 0
                async for text in self._log(name):
                    fresh = text[max(said - at, 0) :]  # a new connection sends the log from its beginning
                    at += len(text)
                    if fresh:
                        say(fresh)
                        said = at
                status = self._client.get_job_status(name)
                if status.is_terminal():
                    return self._code(name, status)
            except (RuntimeError, OSError) as error:
                if attempt == RECONNECTS:
                    raise RaffedError(
                        f"{self.address}: the connection to the job's log was lost ({_line(error)}); the "
                        "job may go on"
                    ) from error
            await asyncio.sleep(min(1.0 + attempt, 10.0))
        raise RaffedError(
            f"{self.address}: the log of {name} ended {RECONNECTS} times before the job; the job may go on"
        )

    def _log(self, name: str) -> AsyncIterator[str]:
        log: AsyncIterator[str] = self._client.tail_job_logs(name)
        return log

    def _code(self, name: str, status: JobStatus) -> int:
        """Return 0 only for a job that succeeded, and otherwise what its command returned, if it returned."""
        if status == JobStatus.SUCCEEDED:
            return 0
        if status == JobStatus.STOPPED:
            return STOPPED
        returned = self._client.get_job_info(name).driver_exit_code
        if returned is None or returned == 0:
            return 1
        return int(returned) if returned > 0 else 128 - int(returned)

    def message(self, name: str) -> str:
        """Return what Ray says about a job that did not succeed, in one line."""
        return _line(self._client.get_job_info(name).message or "")


def _is_refused(error: Exception) -> bool:
    """Return whether a server wants a token. Ray's own message about it has a dozen lines."""
    return isinstance(error, AuthenticationError) or any(
        sign in str(error) for sign in ("401", "Unauthorized")
    )


def _line(error: object) -> str:
    return " ".join(str(error).split())[:500]
