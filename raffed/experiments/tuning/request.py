"""A sweep as plain data: what is asked, the run behind a trial, what a trial scored, which setting is chosen.
Knows no Ray.

The files of a sweep:

    OUT/sweep.json                        the request, every trial with settings, state, score and cost, the
                                          choices, the finals
    OUT/METHOD/trials/SETTINGS/           the run of each trial (raffed/experiments/folder.py)
    OUT/METHOD/trials.parquet             the metric rows of all trials, with the columns trial and settings
    OUT/METHOD/final/seed-N/              the chosen setting run again with a seed that tuning never saw
    OUT/METHOD/damaged/NAME/              runs of trials that could not be read any more, and were run again

sweep.json is read by raffed/results/sweep_file.py, the folder is kept by raffed/experiments/tuning/folder.py.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raffed.config.run import SECTIONS, RunConfig, Runtime
from raffed.errors import UsageError, check_choice
from raffed.methods import METHODS
from raffed.results.sweep_file import SELECT

PROTOCOLS = {
    "validation": (
        "settings chosen on a validation part of the clients' training data; reported: fresh seeds, all "
        "training data"
    ),
    "paper": (
        "settings chosen by test accuracy and that accuracy reported, as the papers do: optimistic, not "
        "comparable"
    ),
}
SCHEDULERS, SEARCHES = ("fifo", "asha"), ("grid", "optuna")
LONGEST_NAME = 200  # of a trial's folder: file systems take 255 bytes
MOST_SEEDS = 10_000  # more final runs than anybody waits for
NEVER_RUN, PRUNED, FINISHED = (
    "never run",
    "pruned",
    "finished",
)  # states of a trial; others are those of its run
MethodSettings = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What a sweep is asked to do.

    base: the runs; its method and args are not used. args: method → arguments that are not searched. grid:
    axis → values, over the method's space: an argument, or a dotted field of the configuration such as
    local.lr, searched for every method. trials: settings tried per method, the same budget for all (None: the
    largest grid). seeds: final runs per method.
    """

    base: RunConfig
    methods: tuple[str, ...]
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    trials: int | None = None
    seeds: int = 3
    protocol: str = "validation"
    select: str = "global"
    scheduler: str = "fifo"
    search: str = "grid"

    def __post_init__(self) -> None:
        if not self.methods:
            raise UsageError("nothing to tune: give --method, once or more")
        for method in self.methods:
            check_choice("method", method, METHODS)  # each is the name of a folder
        for name in self.grid:
            _check_axis(name, self.methods)
        check_choice("protocol", self.protocol, PROTOCOLS)
        check_choice("select", self.select, SELECT)
        if self.protocol == "validation" and not self.base.data.validation:
            raise UsageError(
                "protocol validation needs a validation part: data.validation above 0, such as 0.2"
            )
        if self.protocol == "paper" and self.base.data.validation:
            raise UsageError("protocol paper chooses on test data: leave data.validation at 0")
        for name, value in (("trials", self.trials), ("seeds", self.seeds)):
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value} is below 1")
        if self.seeds > MOST_SEEDS:
            raise UsageError(f"seeds = {self.seeds} is above {MOST_SEEDS}")
        check_choice("scheduler", self.scheduler, SCHEDULERS)
        check_choice("search", self.search, SEARCHES)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON. Of the runtime only what bits depend on, and only if it is not as usual."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        del found["base"]["runtime"], found["base"]["method"], found["base"]["args"]
        runtime = _deciding(self.base.runtime)
        return {**found, "base": {**found["base"], **({"runtime": runtime} if runtime else {})}}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Request:
        """The request that `as_dict` described. A UsageError if nothing could ask for it, or if it says
        where to run.
        """
        base = RunConfig.from_dict(values["base"])
        named = values["base"].get("runtime", {})
        strange = {"method", "args"} & set(values["base"]) or set(named) - set(_deciding(base.runtime))
        if strange:
            raise UsageError(f"request.base holds {min(strange)!r}, which raffed does not write there")
        return Request(**{**values, "base": base, "methods": tuple(values["methods"])})

    def same(self, other: Request) -> bool:
        """Whether both ask for the same results, wherever the data lie and the trials run."""
        mine, theirs = (replace(one, base=_anywhere(one.base)).as_dict() for one in (self, other))
        return mine == theirs

    def config(self, method: str, settings: Mapping[str, Any], seed: int | None = None) -> RunConfig:
        """The run of a trial, or with a `seed` the final run of a chosen setting, which trains on all
        training data.
        """
        tables = self.base.as_dict()
        tables["method"] = method
        tables["args"] = {**self.args.get(method, {}), **{k: v for k, v in settings.items() if "." not in k}}
        for name, value in settings.items():
            section, dot, key = name.partition(".")
            if dot:
                tables[section] = {**tables[section], key: value}
        if seed is not None:
            tables["seed"] = seed
            tables["data"] = {**tables["data"], "validation": 0.0}
        return RunConfig.from_dict(tables)

    def final_seeds(self) -> list[int]:
        """Seeds that tuning did not see: another split, other weights, other batches."""
        return [] if self.protocol == "paper" else [self.base.seed + i for i in range(1, self.seeds + 1)]


def _deciding(runtime: Runtime) -> dict[str, Any]:
    """What bits depend on of where a run is carried out, if it is not as usual: see RunConfig.identity."""
    found: dict[str, Any] = {"threads": runtime.threads, "gpu_fraction": runtime.gpu_fraction}
    unusual = {name: value for name, value in found.items() if value != getattr(Runtime(), name)}
    return unusual | ({"execution": "auto"} if runtime.execution == "auto" else {})


def _anywhere(base: RunConfig) -> RunConfig:
    """The same run without the place of its data and with any share of a GPU."""
    runtime = replace(base.runtime, gpu_fraction=1.0 if base.runtime.gpu_fraction else 0.0)
    return replace(base, data=replace(base.data, root=None, download=False), runtime=runtime)


def _check_axis(name: str, methods: Sequence[str]) -> None:
    """Refuse an axis such as runtime.address: a search varies what is computed, not where."""
    section, dot, _ = name.partition(".")
    if dot and section not in methods:
        check_choice(f"section of the axis {name!r}", section, set(SECTIONS) - {"runtime"})


def within_budget(points: Sequence[MethodSettings], budget: int, seed: int) -> list[MethodSettings]:
    """All points, or `budget` of them drawn without replacement by `seed`, in the order of the grid."""
    if budget >= len(points):
        return list(points)
    kept = random.Random(seed).sample(range(len(points)), budget)
    return [points[index] for index in sorted(kept)]
