"""`raffed.compare`: several methods on the same split and seed, and the report on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from raffed.commands.method_settings import ComparedMethod, by_label
from raffed.commands.progress import CommandProgress, make_progress
from raffed.commands.reporting import WrittenReport, reported
from raffed.commands.running import check_continues, one_ray, start_or_continue
from raffed.commands.seed_results import SeedResults, seed_results
from raffed.config.run import RunConfig
from raffed.config.validation import Value
from raffed.errors import NumericsError, UsageError
from raffed.references.gate import check_inside
from raffed.references.naming import reference_to
from raffed.results.folder_names import folder_name
from raffed.results.storage import mirrored
from raffed.results.tree import check_run_tree

if TYPE_CHECKING:
    from raffed.core.method import Factory
    from raffed.experiments.result import RunResult

Named: TypeAlias = "str | Factory"  # a method, by its name or reference, or its factory
Given: TypeAlias = "Named | tuple[Named, Mapping[str, Value]]"  # or with its arguments
Failed = Callable[[str, NumericsError], None]


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
    methods: Sequence[Given] | Mapping[Named, Mapping[str, Value]],
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
        methods: The methods, as names, references or factories; a mapping gives each its arguments, such as
            `{"fedavg": {}, "fedprox": {"mu": 0.1}}`. A pair of a method and arguments stands for the method
            with these settings, so that one method may be there more than once:
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
        NumericsError: Every method diverged.

    Example:
        >>> raffed.compare(["fedavg", "map"], out="runs/both").report.table  # doctest: +SKIP
        >>> raffed.compare(["map"], out="runs/map", seeds=5).seeds["map"].accuracy  # doctest: +SKIP
    """
    given = _given(methods)
    if not given:
        raise UsageError("nothing to compare: name a method, or more")
    base = config or RunConfig()
    configs = {label: replace(base, method=one.method, args=dict(one.args)) for label, one in given.items()}
    shown, results, diverged = make_progress(progress), dict[str, "RunResult"](), dict[str, str]()
    with mirrored(out) as place:
        if seeds is not None:
            return _over_seeds(configs, place, seeds, shown, accept_changed_code)
        folders = checked_folders(configs, place, accept_changed_code)

        def run(name: str) -> None:
            shown.begin(f"{name} → {folders[name]}")
            results[name] = start_or_continue(
                configs[name], folders[name], shown.round, accept=accept_changed_code
            )

        def failed(name: str, error: NumericsError) -> None:
            diverged[name] = str(error)
            shown.say(f"{name}: {error}")

        with one_ray(next(iter(configs.values()))):
            run_each(configs, run, failed)
        if not results:
            raise NumericsError(f"every method diverged: {'; '.join(diverged.values())}")
        return Comparison(results, diverged, reported(list(folders.values()), place / "report", shown.say))


def _over_seeds(
    configs: Mapping[str, RunConfig], place: Path, seeds: int, shown: CommandProgress, accept: bool
) -> Comparison:
    found, folders = seed_results(configs, place, seeds, shown, accept)
    results = {name: next(iter(one.results.values())) for name, one in found.items() if one.results}
    diverged = {
        name: "; ".join(f"seed {seed}: {why}" for seed, why in one.failed.items())
        for name, one in found.items()
        if one.failed
    }
    return Comparison(results, diverged, reported(folders, place / "report", shown.say), found)


def _given(methods: Sequence[Given] | Mapping[Named, Mapping[str, Value]]) -> dict[str, ComparedMethod]:
    """Return what distinguishes each method → the method."""
    if isinstance(methods, Mapping):
        return {name: ComparedMethod(name, args) for name, args in arguments_by_method(methods).items()}
    pairs = [one if isinstance(one, tuple) else (one, {}) for one in methods]
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


def checked_folders(configs: Mapping[str, RunConfig], out: Path, accept: bool = False) -> dict[str, Path]:
    """Return method → the folder of its run below `out`.

    A mistake in the last method, or a folder that holds something else, is refused before the first one runs.
    `accept` says whether own code may have changed since a run was begun.
    """
    from raffed.methods import build_method

    check_inside(out, out / "report")
    folders = {name: out / folder_name(name) for name in configs}
    for name, config in configs.items():
        build_method(config.method, config.args)
        check_inside(out, folders[name])
        check_run_tree(folders[name])
        check_continues(folders[name], config, accept)
    return folders


def run_each(names: Iterable[str], run: Callable[[str], None], failed: Failed) -> None:
    """Call `run` for each name. Where training diverges `failed` is called, and the next ones run too."""
    for name in names:
        try:
            run(name)
        except NumericsError as error:
            failed(name, error)


__all__ = ["Comparison", "checked_folders", "compare", "run_each"]
