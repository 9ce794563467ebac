"""A sweep as plain data: what is asked, and the run behind each trial. Does not use Ray.

The files of a sweep:

    OUT/sweep.json                  the request, every trial with settings, state, score and cost, the choices
                                    and the final runs
    OUT/METHOD/trials/SETTINGS/     the run of each trial (raffed/runs/folder.py)
    OUT/METHOD/final/seed-N/        the chosen setting, run again with a seed that tuning never saw
    OUT/METHOD/damaged/NAME/        unreadable runs of trials, which were run again

raffed/results/sweep_file.py reads sweep.json, and raffed/search/folder.py writes the folder.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal, TypeAlias

from raffed.config.run import RunConfig
from raffed.config.search_axis import number_range
from raffed.config.sections import SECTIONS, Runtime
from raffed.config.validation import Doc, Json, Range, Value, check_fields, table_of
from raffed.core.own_functions import FRACTION, OwnMetric, own_metrics
from raffed.errors import UsageError, check_choice
from raffed.methods import known_method, method_info
from raffed.methods.authors import is_authors, with_own_network
from raffed.results.sweep_file import SEED_AXIS as SEED_AXIS
from raffed.results.sweep_file import Protocol, Select

PROTOCOLS: dict[Protocol, str] = {
    "validation": (
        "settings chosen on a validation part of the clients' training data; reported: fresh seeds, all "
        "training data"
    ),
    "paper": (
        "settings chosen by test accuracy and that accuracy reported, as the papers do: optimistic, not "
        "comparable"
    ),
}
ACCURACY = "accuracy"  # the score, if nobody asks for another
LONGEST_NAME = 200  # bytes of a trial's folder name; file systems accept 255
# States of a trial: two of a search, and those of its run
NEVER_RUN, PRUNED = "never run", "pruned"
RUNNING, FINISHED, FAILED = "running", "finished", "failed"
NOT_ASKED = ("method", "args", "runtime")  # parts of the base that a request does not consist of
MethodSettings: TypeAlias = dict[str, Json]


@dataclass(frozen=True)
class Request:
    """What a sweep is asked to do."""

    base: Annotated[RunConfig, Doc("The configuration of the runs; its method and args are not used.")]
    methods: Annotated[tuple[str, ...], Doc("The methods to tune.")]
    args: Annotated[
        Mapping[str, Mapping[str, Value]], Doc("Method → arguments that are fixed and not searched.")
    ] = field(default_factory=dict)
    grid: Annotated[
        Mapping[str, Sequence[Value]],
        Doc(
            "Axis → values, in addition to the method's space. An axis is an argument, a dotted field of "
            "the configuration such as local.lr or model.args.hidden, or seed; the last two are searched for "
            "every method. A single text such as 1e-4..1:log is a range (raffed/config/search_axis.py)."
        ),
    ] = field(default_factory=dict)
    trials: Annotated[
        int | None,
        Range(1),
        Doc(
            "Number of settings tried per method; without it: as many as the largest grid has, or 5 if there "
            "is none."
        ),
    ] = None
    seeds: Annotated[
        int, Range(1, 10_000), Doc("Number of final runs per method, with seeds that tuning never saw.")
    ] = 3
    protocol: Annotated[
        Protocol, Doc("Data that settings are chosen by: a validation part, or test data as in the papers.")
    ] = "validation"
    select: Annotated[
        Select, Doc("Models whose accuracy decides; `mean` is the mean of global and personal.")
    ] = "global"
    scheduler: Annotated[
        Literal["fifo", "asha"], Doc("Whether bad trials end early (asha) or all run to the end (fifo).")
    ] = "fifo"
    search: Annotated[
        Literal["grid", "random", "optuna"],
        Doc(
            "Source of settings: the points of the grid, random draws from its values and ranges, or Optuna "
            "over its ranges."
        ),
    ] = "grid"

    score: Annotated[
        str,
        Doc(
            "Metric by which settings are chosen: accuracy, or the name of one of --metric whose unit is a "
            "fraction. Of one that should be low, 1 minus its value counts."
        ),
    ] = ACCURACY
    fill: Annotated[
        Literal["rate", "none"],
        Doc(
            "What a method with fewer settings than the others tries in addition: learning rates around "
            "--lr, so that all have the same number of trials, or nothing."
        ),
    ] = "rate"

    def __post_init__(self) -> None:
        if not self.methods:
            raise UsageError("there is nothing to tune; give --method at least once")
        for method in self.methods:
            method_info(method)
        for name in self.grid:
            owner, dot, entry = name.rpartition(".")
            if dot and owner not in self.methods:
                check_section(name)
            elif dot and entry == SEED_AXIS:
                raise UsageError(f"--grid {name}=…: all methods have the same seeds; write {SEED_AXIS}=…")
        check_fields("", self)
        self._check_seeds()
        if self.protocol == "validation" and not self.base.data.validation:
            raise UsageError(
                "the protocol validation needs a validation part; set data.validation above 0, such as 0.2"
            )
        if self.protocol == "paper" and self.base.data.validation:
            raise UsageError("the protocol paper chooses on test data; leave data.validation at 0")

    def _check_seeds(self) -> None:
        """Refuse an axis of seeds where settings cannot be compared by their means over the seeds."""
        if SEED_AXIS not in self.grid:
            return
        for seed in expanded(self.grid[SEED_AXIS]):
            if not isinstance(seed, int) or isinstance(seed, bool):
                raise UsageError(f"--grid {SEED_AXIS}={seed}: it must be a whole number")
        for name, usual in {"protocol": "validation", "scheduler": "fifo", "search": "grid"}.items():
            if (given := getattr(self, name)) != usual:
                raise UsageError(
                    f"--grid {SEED_AXIS}=… compares settings by their means over these seeds, which needs "
                    f"--{name} {usual}, not {given}; leave the seeds out, or that option"
                )

    def check_score(self) -> None:
        """Refuse a score that cannot choose. It imports the user's code, which must have been compared.

        Raises:
            UsageError: There is no such metric, or it is not a fraction that should be high or low.
        """
        metric = self.own_score
        if metric is not None and (metric.unit != FRACTION or metric.better == "neither"):
            raise UsageError(
                f"score = {self.score!r}: its unit is {metric.unit!r} and better is {metric.better!r}; "
                f"settings are chosen by a fraction in [0, 1] that should be high or low: "
                f'@raffed.metric(unit="fraction", better=...)'
            )

    def as_dict(self) -> dict[str, Json]:
        """Return plain JSON. Of the runtime it holds only what may change bits, and only if that is not the
        default.
        """
        request: dict[str, Json] = json.loads(json.dumps(dataclasses.asdict(self)))
        base = {name: value for name, value in table_of(request["base"]).items() if name not in NOT_ASKED}
        if runtime := _deciding(self.base.runtime):
            base["runtime"] = runtime
        return {**request, "base": base}

    @staticmethod
    def from_dict(values: Mapping[str, Json]) -> Request:
        """Return the request that `as_dict` described.

        Raises:
            UsageError: No request could have this description, or it says where to run.
        """
        tables, methods = table_of(values["base"]), values["methods"]
        base = RunConfig.from_dict(tables)
        named = table_of(tables.get("runtime"))
        strange = {"method", "args"} & set(tables) or set(named) - set(_deciding(base.runtime))
        if strange:
            raise UsageError(f"request.base holds {min(strange)!r}, which raffed does not write there")
        build: Callable[..., Request] = Request
        names = tuple(methods if isinstance(methods, list) else ())
        # The sweeps of before methods could try rates in addition have no `fill`
        return build(**{"fill": "none", **values, "base": base, "methods": names})

    def same(self, other: Request) -> bool:
        """Return whether both ask for the same results, wherever the data are and the trials run."""

        def described(request: Request) -> dict[str, Json]:
            base = request.base
            runtime = replace(base.runtime, gpu_fraction=1.0 if base.runtime.gpu_fraction else 0.0)
            base = replace(base, data=replace(base.data, root=None, download=False), runtime=runtime)
            return replace(request, base=base).as_dict()

        return described(self) == described(other)

    def config(self, method: str, settings: Mapping[str, Value], seed: int | None = None) -> RunConfig:
        """Return the run of a trial. With a `seed`, return the final run of a chosen setting.

        A final run trains on all training data, unless its method needs the validation parts.
        """
        fields = {name: value for name, value in settings.items() if "." in name or name == SEED_AXIS}
        fixed = {name: value for name, value in settings.items() if name not in fields}
        args = {**self.args.get(method, {}), **fixed}
        last: dict[str, Value] = {} if seed is None else {"seed": seed}
        if last and not known_method(method, args).needs_held_out:
            last["data.validation"] = 0.0
        config = self.base.changed({**fields, "method": method, "args": args, **last})
        return with_own_network(config) if is_authors(method) else config

    @cached_property
    def own_score(self) -> OwnMetric | None:
        """The user's own metric by which settings are chosen, or None for the accuracy."""
        if self.score == ACCURACY:
            return None
        known = {metric.name: metric for metric in own_metrics(self.base.federation.metrics)}
        check_choice("score", self.score, [ACCURACY, *known])
        return known[self.score]

    def final_seeds(self) -> list[int]:
        """Return seeds that tuning did not see. They give another split, other weights and other batches."""
        seen = max([self.base.seed, *(int(str(seed)) for seed in expanded(self.grid.get(SEED_AXIS, ())))])
        return [] if self.protocol == "paper" else [seen + i for i in range(1, self.seeds + 1)]


def _deciding(runtime: Runtime) -> dict[str, Json]:
    """Return the part of the runtime that may change bits, if it is not the default; see
    RunConfig.identity.
    """
    deciding: dict[str, Json] = {"threads": runtime.threads, "gpu_fraction": runtime.gpu_fraction}
    return {name: value for name, value in deciding.items() if value != getattr(Runtime(), name)}


def check_section(name: str) -> None:
    """Refuse an axis such as runtime.address. A search varies what is computed, not where."""
    check_choice(f"section of the axis {name!r}", name.partition(".")[0], set(SECTIONS) - {"runtime"})


def expanded(among: Sequence[Value]) -> list[Value]:
    """Return the values of an axis, those of a range as a grid takes them."""
    numbers = number_range(among[0]) if len(among) == 1 else None
    return list(among) if numbers is None else [*numbers.values()]


def within_budget(points: Sequence[MethodSettings], budget: int, seed: int) -> list[MethodSettings]:
    """Return all points, or `budget` of them drawn by `seed` without replacement, in the order of
    the grid.
    """
    if budget >= len(points):
        return list(points)
    kept = random.Random(seed).sample(range(len(points)), budget)
    return [points[index] for index in sorted(kept)]
