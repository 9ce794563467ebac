"""Check names, then execute, resume, iterate over and return runs: `raffed.run`, `resume` and `iterate`.

A `RunResult` is the outcome of a run, read from its folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime as Placed
from raffed.core.own_functions import loss_function, own_metrics
from raffed.core.training.rates import schedule_of
from raffed.errors import RayLostError, RunFolderError, UsageError, check_choice
from raffed.methods import method_info
from raffed.methods.authors import is_authors
from raffed.models import MODELS, model_name
from raffed.results.files import check_tree
from raffed.results.lock import check_unused, gone, held, this_process, written
from raffed.results.metric import Metric
from raffed.results.metrics import PERSONAL_ACCURACY, TEST_ACCURACY
from raffed.results.origin import command_line, said_in, warn_anew
from raffed.results.runfile import RUN_FILE, read_run, write_json
from raffed.results.storage import is_url, local_folder, mirrored
from raffed.runtime.machine import check_switches, steps_of_a_run
from raffed.tune_spaces import has_space, no_space

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from raffed.runs.events import RoundEvent
    from raffed.runtime.setup import Setup


@dataclass(frozen=True, repr=False)
class RunResult:
    """The outcome of a run.

    Attributes:
        folder: The run's folder. None if the run had no `out`, or if its results are at a URL.
        state: "finished", "stopped" or "failed", as in run.json.
        hashes: SHA-256 of the weights, of the client states (`vaults`) and of the metric rows without their
            seconds. Empty unless `state` is "finished".
        ended_early: Why `federation.stop_when` ended the run before its last round; empty if it did not.
        best_round: Number of rounds done at the best model, which is chosen on the clients' validation parts
            alone; None without one.
        metrics: All metric rows as a pyarrow table in long form. `raffed metrics`
            lists them.
    """

    folder: Path | None
    state: str
    hashes: dict[str, str]
    metrics: pa.Table
    ended_early: str = ""
    best_round: int | None = None

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", {str(self.folder)!r}"
        accuracies = f"accuracy={self.accuracy:.4g}, personalization={self.personalization:.4g}"
        return f"RunResult({self.state}, {accuracies}{where})"

    @property
    def accuracy(self) -> float:
        """Accuracy of the global model on the global test set after the last evaluated round.

        Returns:
            A fraction in [0, 1]; NaN if there was no evaluation.
        """
        return self._last(TEST_ACCURACY)

    @property
    def personalization(self) -> float:
        """Mean accuracy of the personalised models after the last evaluated round.

        Each participant of that round is scored on its own local test part, and the mean is unweighted.

        Returns:
            A fraction in [0, 1]; NaN if the clients have no local test parts.
        """
        return self._last(PERSONAL_ACCURACY)

    @property
    def accuracy_best(self) -> tuple[float, int]:
        """Highest accuracy of the global model on the global test set, and the number of rounds done then.

        Many papers print this number. It is chosen on the test set, so it flatters every method a little.

        Returns:
            A fraction in [0, 1] and the round, the first one if several are equal; (NaN, 0) without an
            evaluation.
        """
        return _best(self._values(TEST_ACCURACY))

    @property
    def personalization_by_samples(self) -> tuple[float, float, int]:
        """Accuracy of the personalised models in which every test sample counts once: Σ correct / Σ samples.

        Returns:
            The fraction after the last evaluated round, the highest one, and the round of that;
            (NaN, NaN, 0) if the clients have no local test parts.
        """
        from raffed.results.rows import by_samples  # imported late because it loads pyarrow

        rows = by_samples(self.metrics)
        rows = rows[(rows["model"] == "personal") & (rows["metric"] == "accuracy")].sort_values("round")
        values = list(zip(rows["round"].tolist(), rows["value"].tolist(), strict=True))
        return (values[-1][1] if values else math.nan), *_best(values)

    def to_pandas(self) -> pd.DataFrame:
        """Return all metric rows as a pandas data frame in long form (see `raffed.results.rows`)."""
        frame: pd.DataFrame = self.metrics.to_pandas()
        return frame

    def _last(self, metric: Metric) -> float:
        values = self._values(metric)
        return values[-1][1] if values else math.nan

    def _values(self, metric: Metric) -> list[tuple[int, float]]:
        from raffed.results.rows import common_values

        return common_values(self.metrics, metric)


def _best(values: Iterable[tuple[int, float]]) -> tuple[float, int]:
    """Return the highest value and its first round; (NaN, 0) without a number."""
    known = [(value, -round) for round, value in values if not math.isnan(value)]
    value, round = max(known, default=(math.nan, 0))
    return value, -round


def result_of(path: Path, told: Path | None) -> RunResult:
    """Return the result of the run in a folder.

    `told` is the folder as the caller named it, or None if the folder is not kept.
    """
    from raffed.results.writer import read_metrics  # imported late because it loads pyarrow

    about = read_run(path)
    best = about.get("best")
    return RunResult(
        told,
        about["state"],
        about.get("hashes", {}),
        read_metrics(path),
        about.get("ended_early", ""),
        None if best is None else best["round"],
    )


def result_there(path: Path, told: Path | None) -> RunResult:
    """Return the result of a run that this process has just executed. `told` is that of `result_of`.

    Raises:
        FolderLostError: The folder is no longer there. That is not a refused request, because the run was
            executed.
    """
    with written(path):
        try:
            return result_of(path, told)
        except (RunFolderError, OSError) as error:
            if not (path / RUN_FILE).exists():
                raise gone(path) from error
            raise


# Write into run.json that a run was ended from outside.


PRUNED = "pruned: the search ended this trial early"
LAST_WORD = 5.0  # seconds in which a driver that was ended releases the folder


def mark_stopped(path: Path, *, pruned: bool = False) -> None:
    """Record in run.json that a run was ended from outside, if its driver can no longer do so.

    Nothing is written if another command holds the folder, or if the run came to its end.

    Args:
        path: The run's folder.
        pruned: Whether a search ended it on purpose. Then what interrupted its process is not an error.
    """
    if not (path / RUN_FILE).exists():
        return
    with contextlib.suppress(RunFolderError, OSError), held(path, patience=LAST_WORD):
        about = read_run(path)
        state = about.get("state")
        if state == "running" or (pruned and state != "finished"):
            error = PRUNED if pruned else "interrupted"
            write_json(path / RUN_FILE, {**about, "state": "stopped", "error": error})


# Checks of names and spellings that need neither torch nor Ray, and so take a fraction of a second.


def check_names(config: RunConfig) -> None:
    """Check that method, data set, split syntax, schedule, model and accountant exist.

    Raises:
        UsageError: A name does not exist. The message lists the most similar ones.
    """
    method_info(config.method).check_found()
    from raffed.data.own_data import checked_name  # imported late because it loads NumPy

    checked_name(config.data.dataset)
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    parse_split(config.data.split, config.data.split_args)
    own_metrics(config.federation.metrics)
    if config.loss:
        loss_function(config.loss).load()
    schedule_of(config.local)
    if model_name(config.model.name) != config.model.name:
        check_choice("model", config.model.name, MODELS)
    if config.privacy.noise and importlib.util.find_spec("opacus") is None:
        raise UsageError(
            f"privacy.noise = {config.privacy.noise} needs opacus to compute ε: pip install 'raffed[privacy]'"
        )


def check_space(method: str, axes: Collection[str]) -> None:
    """Check that a method has something to search: a file of tune_spaces, or an axis of --grid of its own."""
    info = method_info(method)
    if info.space is not None or has_space(method):
        return
    takes = {argument.name for argument in info.described().arguments}
    if not any(axis in takes or axis.startswith(f"{method}.") for axis in axes):
        raise UsageError(no_space(method))


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
        with closing(run_events(config, here, False, stop, begun)) as events:
            for event in events:
                if watch is not None:
                    watch(event)
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
    from raffed.runs.code_record import check_code
    from raffed.runs.folder import check_unedited, run_config
    from raffed.runs.integrity import check_finished

    with mirrored(path) as folder:
        here, told = folder.absolute(), None if is_url(path) else folder
        check_tree(here)
        config = run_config(here)
        check_unedited(here)
        about = read_run(here)
        if about["state"] == "finished":
            check_finished(here, about)
            if begun is not None:
                begun()
            return result_of(here, told)
        check_code(here, about, config, accept_changed_code)
        if runtime is not None:
            config = replace(config, runtime=runtime)
        with closing(run_events(config, here, True, stop, begun)) as events:
            for event in events:
                if watch is not None:
                    watch(event)
        return result_there(here, told)


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
    check_set(config.numerics.bits)
    check_names(config)
    check_tree(path)
    check_unused(path)
    if not resumed and path.exists():
        from raffed.runs.folder import check_free  # late, because it loads torch

        check_free(path, config.identity())
    if is_authors(config.method):
        from raffed.runs.author_run import author_events  # late, because it loads torch

        yield from author_events(config, path, resumed, stop or _never, begun)
        return
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
    from raffed.runs.code_record import trust_own
    from raffed.runs.federation import warn
    from raffed.runtime.setup import check_new, prepare_run
    from raffed.runtime.setup_model import check_table

    recorded = read_run(path) if resumed and (path / RUN_FILE).exists() else {}
    setup = prepare_run(config, begun, recorded)
    if not resumed:
        check_new(config.federation, config.faults, config.runtime, setup.data)
    trust_own(setup.code, config.data.dataset)
    check_table(setup.method.name, setup.method.server, setup.network, setup.data)
    warn(setup, resumed)
    return setup


def _serial(
    config: RunConfig, path: Path, resumed: bool, stop: Stop, ready: Ready
) -> Generator[RoundEvent, None, None]:
    check_switches()
    setup = ready()
    from raffed.runs.checkpoint import CLIENT_STATES
    from raffed.runs.federation import conduct
    from raffed.runtime.worker import SerialBackend

    yield from conduct(setup, path, resumed, SerialBackend(setup, path / CLIENT_STATES), stop)


def _on_ray(
    config: RunConfig, path: Path, resumed: bool, stop: Stop, ready: Ready
) -> Generator[RoundEvent, None, None]:
    from raffed.runtime.ray.session import RaySession

    try:
        with RaySession(config.runtime.address) as session:
            setup = ready()  # torch and the data load while Ray starts
            session.wait()
            from raffed.runs.checkpoint import CLIENT_STATES
            from raffed.runs.federation import Asker, conduct
            from raffed.runtime.ray.launch import launched

            conducted = partial(conduct, asker=Asker(this_process(), command_line()))
            yield from launched(setup, path, path / CLIENT_STATES, resumed, conducted, stop)
    except (KeyboardInterrupt, GeneratorExit, RayLostError):
        mark_stopped(path)  # after Ray has ended, because its driver holds the folder
        raise
    if stop():
        mark_stopped(path)


def _never() -> bool:
    return False


# `raffed.iterate`: a run round by round, in a loop of the caller's own.


def iterate(config: RunConfig, out: Path | str | None = None) -> Generator[RoundEvent, None, RunResult]:
    """Execute a run and give the caller each round as soon as it is done.

    Leaving the loop early, or closing the generator, stops the run: a checkpoint is written, run.json says
    `stopped`, and `raffed.resume(out)` continues to the same bits.

    Args:
        config: Method, data set, split, network, settings and seed.
        out: A new folder, or a URL, for the run's files. With None nothing is kept, and a run that was left
            early cannot be resumed.

    Returns:
        A generator of `RoundEvent`, one for each round. Its return value is the `RunResult`.

    Raises:
        UsageError: A setting is not possible, or the folder cannot be used. A name that does not exist is
            refused at once, everything else when the first round is asked for.
        NumericsError, ActorsLostError, ActorStartError: As in `raffed.run`.

    Example:
        >>> for event in raffed.iterate(raffed.RunConfig(method="map")):  # doctest: +SKIP
        ...     print(event.round, event.accuracy)
        ...     if (event.accuracy or 0) > 0.9:
        ...         break
    """
    check_set(config.numerics.bits)
    check_names(config)
    return _rounds(config, out)


def _rounds(config: RunConfig, out: Path | str | None) -> Generator[RoundEvent, None, RunResult]:
    with local_folder(out) as path:
        here = path.absolute()  # absolute, because the caller may change its working folder between rounds
        with closing(run_events(config, here)) as events:
            yield from events
        return result_there(here, None if out is None or is_url(out) else path)
