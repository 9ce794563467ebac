"""One run, start to Parquet: the function behind `raffed run`, `raffed resume` and `raffed.run` in a
notebook.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.config.run import Runtime as Placed
from raffed.experiments.cautions import warn
from raffed.experiments.checks import check_names
from raffed.experiments.folder_place import of_folder, written
from raffed.results.lock import check_can_be_made, check_unused, held, this_process
from raffed.results.runfile import RUN_FILE, read_run
from raffed.results.segments import said_in, warn_anew
from raffed.results.storage import is_url, local_folder, mirrored
from raffed.results.tree import check_run_tree
from raffed.runtime.json_logs import configure, of_run
from raffed.runtime.torch_settings import check_switches, of_a_run, steps_of_a_run

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from raffed.experiments.events import RoundEvent
    from raffed.experiments.folder import RunFolder
    from raffed.runtime.api import Backend
    from raffed.runtime.setup import Setup

log = logging.getLogger(__name__)
RoundWatcher = Callable[["RoundEvent"], None]
Stop = Callable[[], bool]
Ready = Callable[[], "Setup"]
Begun = Callable[[], None]
Chosen = Callable[[str, str], None]  # told what `execution = auto` chose, and the options that repeat it


@dataclass(frozen=True, repr=False)
class RunResult:
    """What a run gave. `folder` is None for a run without `out` or at a URL; `hashes`: SHA-256 of weights,
    vaults and metric rows (without seconds), empty unless `state` is "finished". Accuracies are fractions
    after the last evaluated round.
    """

    folder: Path | None
    state: str
    hashes: dict[str, str]
    metrics: pa.Table

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", {str(self.folder)!r}"
        accuracies = f"accuracy={self.accuracy:.4g}, personalization={self.personalization:.4g}"
        return f"RunResult({self.state}, {accuracies}{where})"

    @property
    def accuracy(self) -> float:
        """Of the global model on the global test set."""
        return self._last("global", "test")

    @property
    def personalization(self) -> float:
        """Mean over the last participants of their personalised model on their local test part; NaN
        without such parts.
        """
        return self._last("personal", "local_test")

    def to_pandas(self) -> pd.DataFrame:
        """The long rows (results/schema.py)."""
        frame: pd.DataFrame = self.metrics.to_pandas()
        return frame

    def _last(self, model: str, split: str) -> float:
        rows = self.to_pandas()
        kept = (rows["model"] == model) & (rows["split"] == split) & (rows["metric"] == "accuracy")
        kept &= rows["client"].isna() & rows["class"].isna()
        values = rows[kept].sort_values("round")["value"]
        return float(values.iloc[-1]) if len(values) else float("nan")


def run(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    watch: RoundWatcher | None = None,
    stop: Stop | None = None,
    chosen: Chosen | None = None,
    begun: Begun | None = None,
) -> RunResult:
    """Carry out a run; `out` is a new folder or URL for its files (None: nothing is kept but the result).

    `watch` is called after every round; `stop` is asked after every round, True ends the run resumably;
    `chosen` is called once, with what `execution = auto` chose and the options of the command line that
    repeat it; `begun` is called once all is checked that can be before the data are read.

    Raises UsageError before anything starts, NumericsError when training diverges, ActorsLostError when
    actors keep dying, ActorStartError when one cannot start.
    """
    with local_folder(out) as path:
        here = (
            path.absolute()
        )  # the working folder belongs to the process, and may be changed while the run goes on
        _execute(config, here, False, watch, stop, chosen, begun)
        with written(here):
            return _result(here, None if out is None or is_url(out) else path)


def resume(
    path: Path | str,
    *,
    watch: RoundWatcher | None = None,
    stop: Stop | None = None,
    runtime: Placed | None = None,
    chosen: Chosen | None = None,
    begun: Begun | None = None,
) -> RunResult:
    """Continue the run in a folder or at a URL from its last checkpoint to the same bits as without the
    interruption.
    """
    with mirrored(path) as folder:
        return _resumed(
            folder.absolute(), None if is_url(path) else folder, watch, stop, runtime, chosen, begun
        )


def _resumed(
    path: Path,
    told: Path | None,
    watch: RoundWatcher | None,
    stop: Stop | None,
    runtime: Placed | None,
    chosen: Chosen | None,
    begun: Begun | None,
) -> RunResult:
    from raffed.experiments.folder import check_unedited, run_config
    from raffed.experiments.integrity import check_finished

    check_run_tree(path)
    config = run_config(path)
    check_unedited(path)
    about = read_run(path)
    if about["state"] == "finished":
        check_finished(path, about)
        if begun is not None:
            begun()
        return _result(path, told)
    if runtime is not None:
        config = replace(config, runtime=runtime)
    _execute(config, path, True, watch, stop, chosen, begun)
    with written(path):
        return _result(path, told)


def _execute(
    config: RunConfig,
    path: Path,
    resumed: bool,
    watch: RoundWatcher | None,
    stop: Stop | None,
    chosen: Chosen | None,
    begun: Begun | None,
) -> None:
    check_names(config)
    check_run_tree(path)
    check_unused(path)
    configure()
    said = said_in(read_run(path)) if resumed else []
    ready: Ready = partial(_ready, config, path, resumed, begun)
    if config.runtime.execution == "auto":
        with of_a_run():
            setup = _decided(ready(), resumed, chosen)
        config, ready = setup.config, lambda: setup
    carried = _serial if config.runtime.execution == "serial" else _on_ray
    events = steps_of_a_run(carried(config, path, resumed, stop or _never, ready))
    with closing(events):  # before anyone is told how it ended, whatever ends it
        _watched(events, path, watch, said if carried is _on_ray else None)


def _watched(
    events: Generator[RoundEvent, None, None],
    path: Path,
    watch: RoundWatcher | None,
    said: list[tuple[str, str]] | None,
) -> None:
    """Log every round and hand it on. said: what was said of the folder before; None if its warnings are
    seen anyway.
    """
    known = False
    for event in events:
        if not known or said is not None:
            with written(path):
                about = read_run(path)
            of_run(about["run_id"])
            known = True
            if said is not None:  # on Ray the folder is opened by an actor, whose warnings nobody sees
                warn_anew(about, said)
        log.info("round %d of %d", event.round, event.rounds, extra={"fields": event.as_dict()})
        if watch is not None:
            watch(event)


def _ready(config: RunConfig, path: Path, resumed: bool, begun: Begun | None) -> Setup:
    """The checked setup of a run and a folder that can take it."""
    from raffed.experiments.folder import check_free
    from raffed.runtime.setup import check_new, prepare_run

    if not resumed:
        check_free(path, config)
        check_can_be_made(path)
    setup = prepare_run(config, begun)
    if not resumed:
        check_new(setup)
    warn(setup)
    return setup


def _decided(setup: Setup, resumed: bool, chosen: Chosen | None) -> Setup:
    """The setup with what a probe of this machine chose for `execution = auto`; a run that goes on keeps
    its arithmetic.
    """
    from raffed.runtime import autosize

    gpu = "cuda" if setup.config.runtime.gpu_fraction else "cpu"
    given = setup.config.numerics.cohort
    probe = autosize.measure(setup, gpu, (max(given, 1),) if given or resumed else None)
    choice = autosize.choose(setup, probe)
    config = autosize.decided(setup.config, choice)
    log.info("execution auto: %s", choice.why)
    if chosen is not None:
        chosen(choice.why, autosize.repeats(config))
    return replace(setup, config=config, choice=choice.describe(probe))


def _serial(
    config: RunConfig, path: Path, resumed: bool, stop: Stop, ready: Ready
) -> Generator[RoundEvent, None, None]:
    check_switches()
    setup = ready()
    from raffed.experiments.checkpoint import VAULTS
    from raffed.runtime.serial import SerialBackend

    yield from conduct_at(setup, path, resumed, SerialBackend(setup, path / VAULTS), stop)


def _on_ray(
    config: RunConfig, path: Path, resumed: bool, stop: Stop, ready: Ready
) -> Generator[RoundEvent, None, None]:
    from raffed.runtime.ray_backend.session import RaySession

    with RaySession(config.runtime.address) as session:
        setup = ready()  # torch and the data load while Ray starts
        session.wait()
        from raffed.experiments.checkpoint import VAULTS
        from raffed.experiments.endings import end_early, mark_interrupted
        from raffed.runtime.ray_backend.endings import lost
        from raffed.runtime.ray_backend.launch import launched

        try:
            yield from launched(
                setup, path, path / VAULTS, resumed, partial(conduct_at, who=this_process()), stop
            )
        except (KeyboardInterrupt, GeneratorExit):
            mark_interrupted(path)
            raise
        if stop() or lost() is not None:
            end_early(path, asked=stop())


def _never() -> bool:
    return False


def conduct_at(
    setup: Setup, path: Path, resumed: bool, runtime: Backend, stop: Stop, who: str | None = None
) -> Iterator[RoundEvent]:
    """Open the run's folder and carry out its rounds on a runtime; in the driver actor, or in this process.
    The folder is this process's alone meanwhile; who: the command, where that is another.
    """
    from raffed.experiments.folder import RunFolder

    with closing(runtime), held(path, who), written(path):
        folder = RunFolder(path, setup, resume=resumed and (path / RUN_FILE).exists())
        of_run(read_run(path)["run_id"])
        yield from conduct(setup, folder, runtime, stop)


def conduct(setup: Setup, folder: RunFolder, runtime: Backend, stop: Stop) -> Iterator[RoundEvent]:
    """The rounds of a run on a runtime, and the true state in run.json however they end."""
    from raffed.errors import RaffedError, RunFolderError
    from raffed.experiments.federation import RoundLoop, weights_sha256

    try:
        with written(folder.path):
            folder.note(
                placement=runtime.placement(),
                **({} if setup.choice is None else {"auto": dict(setup.choice)}),
            )
            federation = RoundLoop(setup, runtime, folder)
            yield from federation.rounds(stop)
            if federation.server.round == setup.config.federation.rounds:
                digests = runtime.vault_digests(federation.versions)
                folder.note(placement=runtime.placement())
                folder.finish(
                    federation.server, weights_sha256(federation.state), digests, federation.round_hashes
                )
            else:
                folder.end("stopped", None)
    except (KeyboardInterrupt, GeneratorExit):
        _ended(folder, "stopped", "interrupted")
        raise
    except RaffedError as error:
        _ended(folder, "failed", str(error))
        if isinstance(error, RunFolderError):  # no longer a request that is refused: the run could not go on
            raise RaffedError(str(error)) from error
        raise
    except BaseException as error:
        _ended(folder, "failed", f"{type(error).__name__}: {error}")
        raise


def _ended(folder: RunFolder, state: str, error: str) -> None:
    """Put down how a run ended; where that fails as well, what ended it is the error to tell."""
    try:
        folder.end(state, error)
    except OSError as second:
        level = logging.INFO if of_folder(second) else logging.WARNING
        log.log(level, "%s: its state could not be put down: %s", folder.path, second)


def _result(path: Path, told: Path | None) -> RunResult:
    """What the run in a folder gave; told: the folder as the caller named it, None where it is not kept."""
    from raffed.results.writer import read_metrics  # brings pyarrow, which nothing needs before

    about = read_run(path)
    return RunResult(told, about["state"], about.get("hashes", {}), read_metrics(path))
