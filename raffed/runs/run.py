"""Execute, resume and return runs: the functions behind `raffed run`, `raffed resume` and `raffed.run`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.config.run import Runtime as Placed
from raffed.errors import RayLostError, RunFolderError
from raffed.results.lock import check_can_be_made, check_unused
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.segments import said_in, warn_anew
from raffed.results.storage import is_url, local_folder, mirrored
from raffed.results.tree import check_run_tree
from raffed.runs.checks import check_here
from raffed.runs.endings import mark_interrupted
from raffed.runs.result import RunResult, result_of, result_there
from raffed.runtime.torch_settings import check_switches, steps_of_a_run

if TYPE_CHECKING:
    from raffed.runs.events import RoundEvent
    from raffed.runtime.setup import Setup

RoundWatcher = Callable[["RoundEvent"], None]
Stop = Callable[[], bool]
Ready = Callable[[], "Setup"]
Begun = Callable[[], None]


def run(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    watch: RoundWatcher | None = None,
    stop: Stop | None = None,
    begun: Begun | None = None,
) -> RunResult:
    """Execute a run from its first to its last round.

    Args:
        config: Method, data set, split, network, settings and seed.
        out: A new folder, or a URL (s3://, gs://, abfs://, hdfs://, file://), for the run's files. With None
            nothing is kept except the returned result.
        watch: Called with a `RoundEvent` after every round.
        stop: Called after every round. If it returns True, the run ends there and can be resumed.
        begun: Called once, when everything has been checked that can be checked before the data are read.

    Returns:
        The state, hashes and metric rows of the run.

    Raises:
        UsageError: A setting is not possible, or the folder cannot be used. Raised before training starts.
        NumericsError: Training diverged.
        ActorsLostError: Actors kept dying.
        ActorStartError: An actor could not start.

    Example:
        >>> import raffed
        >>> result = raffed.run(raffed.RunConfig(method="map"), out="runs/map")  # doctest: +SKIP
        >>> result.accuracy, result.personalization  # doctest: +SKIP
    """
    with local_folder(out) as path:
        here = path.absolute()  # absolute, because the process may change its working folder during the run
        _execute(config, here, False, watch, stop, begun)
        return result_there(here, None if out is None or is_url(out) else path)


def resume(
    path: Path | str,
    *,
    watch: RoundWatcher | None = None,
    stop: Stop | None = None,
    runtime: Placed | None = None,
    begun: Begun | None = None,
    accept_changed_code: bool = False,
) -> RunResult:
    """Continue a run from its last checkpoint.

    The result is reproducible bit for bit: it equals that of a run without the interruption. A run that is
    already finished is checked and returned.

    Args:
        path: The run's folder or URL.
        watch: As in `run`.
        stop: As in `run`.
        runtime: Where the remaining rounds are computed. With None, as in the run's configuration.
        begun: As in `run`.
        accept_changed_code: Whether the run may go on with own code, such as that of its method, that has
            changed since it was begun. run.json then records the old and new hashes.

    Returns:
        The result of the whole run, including the rounds before the interruption.

    Raises:
        RunFolderError: The folder is damaged, was edited, is in use, or is not that of a run; or the run's
            own code is missing or has changed.
        UsageError, NumericsError, ActorsLostError, ActorStartError: As in `run`.

    Example:
        >>> result = raffed.resume("runs/map")  # doctest: +SKIP
    """
    with mirrored(path) as folder:
        return _resumed(
            folder.absolute(),
            None if is_url(path) else folder,
            watch,
            stop,
            runtime,
            begun,
            accept_changed_code,
        )


def _resumed(
    path: Path,
    told: Path | None,
    watch: RoundWatcher | None,
    stop: Stop | None,
    runtime: Placed | None,
    begun: Begun | None,
    accept_changed_code: bool,
) -> RunResult:
    from raffed.runs.code_record import check_code
    from raffed.runs.folder import check_unedited, run_config
    from raffed.runs.integrity import check_finished

    check_run_tree(path)
    config = run_config(path)
    check_unedited(path)
    about = read_run(path)
    if about["state"] == "finished":
        check_finished(path, about)
        if begun is not None:
            begun()
        return result_of(path, told)
    check_code(path, about, config, accept_changed_code)
    if runtime is not None:
        config = replace(config, runtime=runtime)
    _execute(config, path, True, watch, stop, begun)
    return result_there(path, told)


def _execute(
    config: RunConfig,
    path: Path,
    resumed: bool,
    watch: RoundWatcher | None,
    stop: Stop | None,
    begun: Begun | None,
) -> None:
    with closing(run_events(config, path, resumed, stop, begun)) as events:
        for event in events:
            if watch is not None:
                watch(event)


def run_events(
    config: RunConfig,
    path: Path,
    resumed: bool = False,
    stop: Stop | None = None,
    begun: Begun | None = None,
) -> Generator[RoundEvent, None, None]:
    """Execute a run in an absolute local folder and yield the event of each round.

    If the generator is closed before its end, the run is recorded as stopped and can be resumed. `stop`
    and `begun` are those of `run`.
    """
    check_here(config)
    check_run_tree(path)
    check_unused(path)
    if not resumed:
        if path.exists():
            from raffed.runs.folder import check_free  # late, because it loads torch

            check_free(path, config)
        check_can_be_made(path)
    said = said_in(read_run(path)) if resumed else []
    ready: Ready = partial(_ready, config, path, resumed, begun)
    carried = _serial if config.runtime.execution == "serial" else _on_ray
    events = steps_of_a_run(carried(config, path, resumed, stop or _never, ready))
    with closing(events):  # closed before anyone learns how the run ended
        if carried is _serial:  # the user sees the warnings of this process anyway
            yield from events
        else:
            yield from _warned_anew(events, path, said)


def _warned_anew(
    events: Generator[RoundEvent, None, None], path: Path, said: list[tuple[str, str]]
) -> Generator[RoundEvent, None, None]:
    """Pass events on, and repeat the warnings of the actor that has opened the folder, which nobody sees.

    `said` holds the warnings about the folder from before.
    """
    known = False
    for event in events:
        if not known:
            # What is wrong with the folder is reported by the process that writes there, since it knows why
            with contextlib.suppress(RunFolderError, OSError):
                warn_anew(read_run(path), said)
                known = True
        yield event


def _ready(config: RunConfig, path: Path, resumed: bool, begun: Begun | None) -> Setup:
    """Return the checked setup of a run."""
    from raffed.runs.cautions import warn
    from raffed.runs.code_record import trust_own
    from raffed.runtime.setup import check_new, prepare_run

    recorded = read_run(path) if resumed and (path / RUN_FILE).exists() else {}
    setup = prepare_run(config, begun, str(recorded.get("data_sha256", "")))
    if not resumed:
        check_new(setup)
    trust_own(setup.code, config)
    warn(setup, resumed)
    return setup


def _serial(
    config: RunConfig, path: Path, resumed: bool, stop: Stop, ready: Ready
) -> Generator[RoundEvent, None, None]:
    check_switches()
    setup = ready()
    from raffed.runs.checkpoint import CLIENT_STATES
    from raffed.runs.conduct import conduct_at
    from raffed.runtime.serial import SerialBackend

    yield from conduct_at(setup, path, resumed, SerialBackend(setup, path / CLIENT_STATES), stop)


def _on_ray(
    config: RunConfig, path: Path, resumed: bool, stop: Stop, ready: Ready
) -> Generator[RoundEvent, None, None]:
    from raffed.runtime.ray.session import RaySession

    try:
        with RaySession(config.runtime.address) as session:
            setup = ready()  # torch and the data load while Ray starts
            session.wait()
            from raffed.runs.checkpoint import CLIENT_STATES
            from raffed.runs.conduct import conduct_at, this_asker
            from raffed.runtime.ray.launch import launched

            conduct = partial(conduct_at, asker=this_asker())
            yield from launched(setup, path, path / CLIENT_STATES, resumed, conduct, stop)
    except (KeyboardInterrupt, GeneratorExit, RayLostError):
        mark_interrupted(path)  # after Ray has ended, because its driver holds the folder
        raise
    if stop():
        mark_interrupted(path)


def _never() -> bool:
    return False
