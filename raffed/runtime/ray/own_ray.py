"""A Ray for this process only.

Other processes do not find it, it can be reached only from this machine, and it requires a random token. By
default, Ray would look for another Ray first (RAY_ADDRESS, a file that a cluster left, processes of others).
It would listen on all interfaces, write its token into the home folder, and keep its sockets in a folder that
everybody may write to.

A batch system, `timeout` or a terminal sends a signal to the whole group of processes. Ray's processes lead
sessions of their own, which the signal does not reach, so the run can write a checkpoint before they end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from raffed.errors import UsageError
from raffed.scratch import hold, remove_left, socket_folder

if TYPE_CHECKING:
    from ray.job_config import JobConfig

# Waiting with messages: a line says what is waited for, after 20 seconds and then every minute.


FIRST_SECONDS, LATER_SECONDS = 20.0, 60.0


class Patience:
    """Says when a message is due. It is asked repeatedly while something is waited for."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = FIRST_SECONDS

    def due(self) -> str | None:
        """Return how long the wait has been, in words, if a message is due, and otherwise None."""
        waited = time.monotonic() - self._began
        if waited < self._next:
            return None
        self._next = waited + LATER_SECONDS
        return f"{waited:.0f} s so far"


LOOPBACK = "127.0.0.1"
VITAL = {"gcs_server": "Ray's head process (gcs_server)", "raylet": "Ray's node process (raylet)"}
CLOSER = "`raffed doctor --ray` looks closer, and `raffed run --execution serial` runs without Ray"
QUIET_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise every ray.init leaves a thread and a socket behind in this process
    "RAY_enable_open_telemetry": "0",
    # With Ray's default of 15, every other process on a laptop has priority over the actors
    "RAY_worker_niceness": "0",
    # Otherwise Ray starts a worker for each core, and waits for ever if one dies (ray-project/ray#40131)
    "RAY_prestart_worker_first_driver": "0",
    # Otherwise an agent reads the memory of all of Ray's processes every 5 seconds, and nobody looks at it
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
    # No process of Ray imports from the folder in which a command is typed, or from that of a script
    "PYTHONSAFEPATH": "1",
}
ELSEWHERE = (  # these point to another Ray, or to its token
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_CLIENT_MODE",
    "RAY_ENABLE_GCS_LEADER_ELECTION",
    "RAY_GCS_SERVER_PORT",
    "RAY_NAMESPACE",
    "RAY_OVERRIDE_DASHBOARD_URL",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
    "RAY_REDIS_ADDRESS",
    "RAY_REDIS_PASSWORD",
    "RAY_RUNTIME_ENV",
    "RAY_RUNTIME_ENV_HOOK",
    "RAY_USE_TLS",
    "RAY_external_storage_namespace",
)
OF_IMPORT = {  # Ray reads these from the environment once, when it is imported
    "ENABLE_RAY_CLUSTER": False,  # the node's address is 127.0.0.1, so that everything listens only there
    # Under `uv run`, Ray would send the project's folder to the actors of this machine
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": False,
}


class RayStartError(UsageError):
    """Ray cannot start on this machine as it is. The message says why, and what to do."""


class _Unchanging(list[str]):
    """A list to which Ray's client adds nothing."""

    def extend(self, _: object) -> None:
        """Add nothing."""


def without_folders() -> JobConfig:
    """Return the settings of a job whose workers import nothing from the folder of this process.

    Ray would put that folder before all others, and a file there may have the name of any module. The code of
    a run is carried to the workers (raffed/own/carried.py).
    """
    from ray.job_config import JobConfig

    config = JobConfig()
    config._py_driver_sys_path = _Unchanging()
    return config


class OwnRay:
    """A Ray that begins with `start` and is gone after `end`.

    Both must be called in one thread, because the kernel ends Ray's processes with the thread that started
    them. `folder` holds its files. It has mode 0700 and is removed at the end. The token exists only in the
    environment of its processes.
    """

    up: ClassVar[OwnRay | None] = None  # that of this process; Ray allows only one
    folder: Path
    token: str
    vital: Mapping[int, str]  # process id → name, of the processes that Ray cannot do without

    def start(self, **options: Any) -> None:
        """Start Ray.

        Args:
            options: Arguments of `ray.init`, such as num_cpus.

        Raises:
            RayStartError: Ray cannot start.
        """
        try:
            self.folder = socket_folder()
        except OSError as error:
            raise RayStartError(
                f"Ray has no folder for its sockets: {error}; set RAY_TMPDIR to one"
            ) from error
        self._let_go = hold(self.folder)
        remove_left(self.folder.parent)
        _starting.here = True
        try:
            self._begin(options)
        except Exception as error:
            self.end(keep=True)
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
            logs = f"{self.folder}/r/session_latest/logs"
            raise RayStartError(f"Ray could not start: {first} (its logs: {logs}); {CLOSER}") from error
        finally:
            _starting.here = False
        self.vital, OwnRay.up = _vital(), self
        # While Ray starts, its own messages would appear before raffed's
        logging.getLogger("ray").setLevel(logging.ERROR)

    def _begin(self, options: dict[str, Any]) -> None:
        import ray

        self.token = secrets.token_hex(32)
        with _environment(self.token), _constants(OF_IMPORT):
            ray.init(
                address="local",
                include_dashboard=False,
                logging_level=logging.CRITICAL,
                log_to_driver=False,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(self.folder / "r"),
                _skip_env_hook=True,
                job_config=without_folders(),
                **options,
            )

    def end(self, keep: bool = False) -> None:
        """End Ray's processes, forget the token, and remove the folder unless it is to be kept."""
        import ray

        OwnRay.up = None
        ray.shutdown()
        _read_again()
        self._let_go()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


class _Starting(threading.local):
    """Whether this thread is starting Ray, so that its children are Ray's processes."""

    here = False


_starting = _Starting()


def _lead() -> None:
    """Give a process of Ray its own session, before it becomes Ray's program."""
    if _starting.here:
        os.setsid()


# Subprocess calls it because Ray asks for work to be done before the program begins
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lead)


def _vital() -> dict[int, str]:
    """Return the processes that Ray cannot do without, of the children of this thread. Only Linux says it."""
    names = dict[int, str]()
    with contextlib.suppress(OSError):
        for child in Path("/proc/thread-self/children").read_text(encoding="ascii").split():
            names[int(child)] = Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip()
    return {child: name for child, name in names.items() if name in VITAL}


def lost() -> str | None:
    """Return which process that the own Ray of this process cannot do without has died, or None.

    Ray's client notices it only after up to a minute.
    """
    vital = {} if OwnRay.up is None else OwnRay.up.vital
    dead = (f"{VITAL[name]}, process {child}," for child, name in vital.items() if _has_ended(child))
    return " and ".join(dead) or None


def _has_ended(child: int) -> bool:
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # Ray's library has seen its end
        return True


@contextlib.contextmanager
def _environment(token: str) -> Iterator[None]:
    """Set the environment that Ray's processes inherit, for the body. Afterwards it is restored."""
    quiet = {name: os.environ.get(name, value) for name, value in QUIET_RAY.items()}
    wanted = {**quiet, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    before = {name: os.environ.get(name) for name in (*wanted, *ELSEWHERE)}
    os.environ.update(wanted)
    for name in ELSEWHERE:
        os.environ.pop(name, None)
    try:
        _read_again()
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _read_again() -> None:
    """Let Ray's library in this process read its settings from the environment once more, token included.

    Not while a Ray is up: one that began without its metrics ends the process if they are switched on later.
    """
    import ray

    if ray.is_initialized():
        return
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # of the compiled part

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _constants(values: Mapping[str, bool]) -> Iterator[None]:
    """Replace values that Ray has already read from the environment, for the body."""
    from ray._private import ray_constants

    before = {name: getattr(ray_constants, name) for name in values}
    for name, value in values.items():
        setattr(ray_constants, name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            setattr(ray_constants, name, old)
