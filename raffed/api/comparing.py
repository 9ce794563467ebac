"""`raffed.compare`: several methods on the same split and seed, and the report on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from raffed.api.many_runs import Ending, execute_all, execute_at_once, method_runs, seed_runs
from raffed.api.reporting import WrittenReport, reported
from raffed.api.running import ComparedMethod, Run, by_label, make_progress
from raffed.config.run import RunConfig
from raffed.config.validation import Value
from raffed.errors import NumericsError, UsageError
from raffed.own.names import reference_to
from raffed.results.storage import mirrored

if TYPE_CHECKING:
    import pandas as pd

    from raffed.core.method import Factory
    from raffed.runs.run import RunResult

Named: TypeAlias = "str | Factory"  # a method, by its name or reference, or its factory
Given: TypeAlias = "Named | tuple[Named, Mapping[str, Value]]"  # or with its arguments


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds.

    Attributes:
        mean: The mean, a fraction; NaN without any value.
        half: Half the width of its 95 % t-interval; NaN for fewer than three seeds, which are too few.
        seeds: Number of seeds that have a value.
    """

    mean: float
    half: float
    seeds: int

    def __str__(self) -> str:
        count = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        if math.isnan(self.half):
            return f"{self.mean:.4f} ({count}, too few for an interval)"
        return f"{self.mean:.4f} ± {self.half:.4f} (95 %, {count})"


@dataclass(frozen=True, repr=False)
class SeedResults:
    """The results of one method with several seeds.

    Attributes:
        results: Seed → the result of its run. Runs that failed are missing.
        failed: Seed → why its run failed.
    """

    results: Mapping[int, RunResult]
    failed: Mapping[int, str]

    def __repr__(self) -> str:
        return f"SeedResults(accuracy={self.accuracy}, personalization={self.personalization})"

    @property
    def accuracy(self) -> SeedMean:
        """Accuracy of the global model on the global test set after the last evaluated round."""
        return _mean([result.accuracy for result in self.results.values()])

    @property
    def personalization(self) -> SeedMean:
        """Accuracy of the personalised models after the last evaluated round (`RunResult`)."""
        return _mean([result.personalization for result in self.results.values()])

    def to_pandas(self) -> pd.DataFrame:
        """Return the metric rows of all runs as one pandas data frame; the column `seed` tells them apart."""
        import pandas as pd

        from raffed.results.rows import SCHEMA

        frames = [result.to_pandas() for result in self.results.values()]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=SCHEMA.names)


def _mean(values: Sequence[float]) -> SeedMean:
    from raffed.analysis.metrics.intervals import reported_interval

    known = [value for value in values if not math.isnan(value)]
    mean = sum(known) / len(known) if known else math.nan
    return SeedMean(mean, reported_interval(known), len(known))


@dataclass(frozen=True)
class Comparison:
    """What `compare` did.

    Attributes:
        results: Method → the result of its run; a method that diverged is missing. With several seeds it is
            the run of the first seed that finished.
        diverged: Method → the reason. With several seeds it names the seeds of which this is true.
        report: The report on all runs, with its table as a pandas frame. With several seeds the table has
            means with intervals, and `report.differences` the paired differences.
        seeds: Method → the results of all its seeds. Empty unless `seeds` was given.
    """

    results: Mapping[str, RunResult]
    diverged: Mapping[str, str]
    report: WrittenReport
    seeds: Mapping[str, SeedResults] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """Return the table as HTML, which a notebook shows."""
        return self.report.table.to_html()


def compare(
    methods: Named | Sequence[Given] | Mapping[Named, Mapping[str, Value]],
    config: RunConfig | None = None,
    *,
    out: Path | str,
    seeds: int | None = None,
    progress: bool = True,
    accept_changed_code: bool = False,
) -> Comparison:
    """Run several methods on the same split, participants and batches, and report, as `raffed compare` does.

    Called again with the same arguments it keeps what is finished and goes on. Where a method diverges, the
    others run all the same.

    Args:
        methods: The methods, or one, as names, references or factories; a mapping gives each its arguments,
            such as `{"fedavg": {}, "fedprox": {"mu": 0.1}}`. A pair of a method and arguments stands for the
            method with these settings, so that one method may be there more than once:
            `["fedavg", ("fedprox", {"mu": 0.1}), ("fedprox", {"mu": 1.0})]`. Results and folders then have
            names such as "fedprox,mu=0.1".
        config: Everything but method and arguments. Without it: the defaults.
        out: Folder or URL for a run of each method, in a folder of its name, and for the report.
        seeds: Number of runs for each method, with the seeds config.seed, config.seed + 1, …; each lies in
            OUT/METHOD/seed-K and has the bits of a single run with that seed. Each takes a process of its
            own, as many at a time as cores and memory allow, unless [runtime] says how clients are placed:
            then the runs share one Ray, one after the other. None: one run, in OUT/METHOD.
        progress: Whether rounds are shown on stderr or below the notebook's cell.
        accept_changed_code: Whether runs that were made with earlier own code, such as that of a method, are
            kept and continued. run.json records the change, and the report keeps such runs apart.

    Returns:
        The results by method, and the report.

    Raises:
        UsageError: Something asked for is not possible. Raised before the first method runs; with several
            seeds also if the data cannot be used.
        RunFolderError: A folder holds a run with other settings, or with other code.
        DataFileError: Data of one's own have changed since some of the runs were begun.
        NumericsError: Every method diverged.

    Example:
        >>> raffed.compare(["fedavg", "map"], out="runs/both").report.table  # doctest: +SKIP
        >>> raffed.compare(["map"], out="runs/map", seeds=5).seeds["map"].accuracy  # doctest: +SKIP
    """
    given = _given([methods] if isinstance(methods, str) or callable(methods) else methods)
    if not given:
        raise UsageError("nothing to compare: name a method, or more")
    base = config or RunConfig()
    configs = {label: replace(base, method=run.method, args=dict(run.args)) for label, run in given.items()}
    shown = make_progress(progress)
    with mirrored(out) as place:
        if seeds is None:
            runs = method_runs(configs, place, accept_changed_code)
        else:
            runs = seed_runs(configs, place, seeds, accept=accept_changed_code)

        results: dict[Run, RunResult] = {}

        def in_turn(run: Run) -> None:
            shown.begin(f"{run.title} → {run.folder}")
            results[run] = run.go_on(shown.round)

        endings = execute_all(
            runs, shown, in_turn=in_turn, together=lambda left: execute_at_once(left, shown)
        )
        lost = _lost(endings)
        results |= {run: run.go_on(lambda event: None) for run in runs if run not in {**results, **lost}}
        folders = [run.folder for run in runs if run in results or run.folder.exists()]
        return _compared(configs, results, lost, reported(folders, place / "report", shown.say), seeds)


def _lost(endings: Mapping[Run, Ending]) -> dict[Run, str]:
    """Return why runs did not finish.

    Raises:
        UsageError: The request itself is at fault.
        NumericsError: No run finished.
    """
    for ending in endings.values():
        if ending.refused:
            raise UsageError(ending.why)
    lost = {run: ending.why or ending.state for run, ending in endings.items() if ending.state != "finished"}
    if len(lost) == len(endings):
        raise NumericsError(f"every run failed: {'; '.join(dict.fromkeys(lost.values()))}")
    return lost


def _compared(
    methods: Iterable[str],
    results: Mapping[Run, RunResult],
    lost: Mapping[Run, str],
    report: WrittenReport,
    seeds: int | None,
) -> Comparison:
    first: dict[str, RunResult] = {}
    for run, result in results.items():
        first.setdefault(run.method, result)
    if seeds is None:
        return Comparison(first, {run.method: why for run, why in lost.items()}, report)
    by_seed = {
        name: SeedResults(
            {run.config.seed: result for run, result in results.items() if run.method == name},
            {run.config.seed: why for run, why in lost.items() if run.method == name},
        )
        for name in methods
    }
    diverged = {
        name: "; ".join(f"seed {seed}: {why}" for seed, why in over_seeds.failed.items())
        for name, over_seeds in by_seed.items()
        if over_seeds.failed
    }
    return Comparison(first, diverged, report, by_seed)


def _given(methods: Sequence[Given] | Mapping[Named, Mapping[str, Value]]) -> dict[str, ComparedMethod]:
    """Return what distinguishes each method → the method."""
    if isinstance(methods, Mapping):
        return {name: ComparedMethod(name, args) for name, args in arguments_by_method(methods).items()}
    pairs = [method if isinstance(method, tuple) else (method, {}) for method in methods]
    return by_label(ComparedMethod(_named(method), dict(args)) for method, args in pairs)


def arguments_by_method(
    methods: Sequence[Named] | Mapping[Named, Mapping[str, Value]],
) -> dict[str, Mapping[str, Value]]:
    """Return the name or reference of each method → its arguments.

    Raises:
        UsageError: A method is there twice.
    """
    if isinstance(methods, Mapping):
        return {_named(method): dict(args) for method, args in methods.items()}
    by_label(ComparedMethod(_named(method), {}) for method in methods)
    return {_named(method): {} for method in methods}


def _named(method: Named) -> str:
    return method if isinstance(method, str) else reference_to(method)
