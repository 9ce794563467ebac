"""A sweep as plain data: what is asked, the run behind a trial, what a trial scored, which setting is chosen. Knows no Ray.

The files of a sweep:

    OUT/sweep.json                        the request, every trial with settings, state, score and cost, the choices, the finals
    OUT/METHOD/trials/SETTINGS/           the run of each trial (raffed/experiments/folder.py)
    OUT/METHOD/trials.parquet             the metric rows of all trials, with the columns trial and settings
    OUT/METHOD/final/seed-N/              the chosen setting run again with a seed that tuning never saw
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raffed.core.config import RunConfig
from raffed.core.errors import RunFolderError, UsageError, check_choice, check_permitted
from raffed.methods import METHODS
from raffed.results.lock import advice as remedy
from raffed.results.lock import make_folder
from raffed.results.runfile import RUN_FILE, read_run, write_json

SWEEP_FILE = "sweep.json"
PROTOCOLS = {
    "validation": "settings chosen on a validation part of the clients' training data; reported: fresh seeds, all training data",
    "paper": "settings chosen by test accuracy and that accuracy reported, as the papers do: optimistic, not comparable",
}
SCHEDULERS, SEARCHES = ("fifo", "asha"), ("grid", "optuna")
SELECT = ("global", "personal", "mean")
Settings = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What a sweep is asked to do.

    base: the runs; its method and args are not used. args: method → arguments that are not searched. grid: axis → values, over
    the method's space: an argument, or a dotted field of the configuration such as local.lr, searched for every method.
    trials: settings tried per method, the same budget for all (None: the largest grid). seeds: final runs per method.
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
        for method in self.methods:
            check_choice("method", method, METHODS)  # each is the name of a folder
        check_choice("protocol", self.protocol, PROTOCOLS)
        check_choice("select", self.select, SELECT)
        if self.protocol == "validation" and not self.base.data.validation:
            raise UsageError("protocol validation needs a validation part: data.validation above 0, such as 0.2")
        if self.protocol == "paper" and self.base.data.validation:
            raise UsageError("protocol paper chooses on test data: leave data.validation at 0")
        for name, value in (("trials", self.trials), ("seeds", self.seeds)):
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value} is below 1")
        check_choice("scheduler", self.scheduler, SCHEDULERS)
        check_choice("search", self.search, SEARCHES)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; the runtime, which changes no result, stays out."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        del found["base"]["runtime"], found["base"]["method"], found["base"]["args"]
        return found

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Request:
        """The request that `as_dict` described."""
        return Request(**{**values, "base": RunConfig.from_dict(values["base"]), "methods": tuple(values["methods"])})

    def config(self, method: str, settings: Mapping[str, Any], seed: int | None = None) -> RunConfig:
        """The run of a trial, or with a `seed` the final run of a chosen setting, which trains on all training data."""
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


@dataclass(frozen=True)
class Trial:
    """One setting: its run's state, rounds, seconds, and its score, a fraction (NaN unless the run is finished)."""

    name: str
    settings: Settings
    state: str
    rounds: int = 0
    seconds: float = 0.0
    score: float = math.nan
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: null for a score that is not there."""
        return {**dataclasses.asdict(self), "score": None if math.isnan(self.score) else self.score}


def score(request: Request, values: Mapping[tuple[str, str], float | None]) -> float:
    """The number that is maximised, from {(model, split): accuracy}; NaN where it was not measured."""
    splits = ("val", "val") if request.protocol == "validation" else ("test", "local_test")
    both = [values.get(("global", splits[0])), values.get(("personal", splits[1]))]
    wanted = {"global": both[:1], "personal": both[1:], "mean": both}[request.select]
    known = [math.nan if value is None else value for value in wanted]
    return sum(known) / len(known)


def trial_name(settings: Mapping[str, Any]) -> str:
    """The name of a trial and of its folder: its settings, in their order."""
    text = ",".join(f"{name}={value}" for name, value in settings.items()) or "defaults"
    return re.sub(r"[^A-Za-z0-9.,=_+-]+", "-", text)


def within_budget(points: Sequence[Settings], budget: int, seed: int) -> list[Settings]:
    """All points, or `budget` of them drawn without replacement by `seed`, in the order of the grid."""
    if budget >= len(points):
        return list(points)
    kept = random.Random(seed).sample(range(len(points)), budget)
    return [points[index] for index in sorted(kept)]


def read_trial(request: Request, folder: Path, settings: Settings, error: str | None = None) -> Trial:
    """What the run of a trial left; "never run" where there is none."""
    name = trial_name(settings)
    if not (folder / RUN_FILE).exists():
        return Trial(name, settings, "failed" if error else "never run", error=error)
    about = read_run(folder)
    rounds = recorded(folder)
    done = about.get("state") == "finished" and bool(rounds)
    last = score(request, rounds[max(rounds)]) if done else math.nan
    number = max(rounds, default=0)
    message = about.get("error") or error
    return Trial(name, settings, str(about.get("state")), number, float(about.get("seconds", 0.0)), last, message)


def recorded(folder: Path, upto: int | None = None) -> dict[int, dict[tuple[str, str], float | None]]:
    """Round → {(model, split): accuracy of the server's row}, of the evaluated rounds that are written."""
    import pyarrow.compute as pc

    from raffed.results.writer import read_metrics

    table = read_metrics(folder)
    kept = pc.and_(pc.is_null(table["client"]), pc.is_null(table["class"]))
    kept = pc.and_(kept, pc.equal(table["metric"].cast("string"), "accuracy"))
    rounds: dict[int, dict[tuple[str, str], float | None]] = {}
    for row in table.filter(kept).select(["round", "model", "split", "value"]).to_pylist():
        if upto is None or row["round"] <= upto:
            rounds.setdefault(row["round"], {})[row["model"], row["split"]] = row["value"]
    return rounds


def choose(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial with the highest score; of equals the first. None if none has a score."""
    scored = [trial for trial in trials if not math.isnan(trial.score)]
    return max(scored, key=lambda trial: trial.score) if scored else None


def cost(trials: Sequence[Trial]) -> dict[str, float]:
    """What choosing cost: trials begun, their rounds, and the seconds of the processes that ran them."""
    begun = [trial for trial in trials if trial.state != "never run"]
    return {"trials": len(begun), "rounds": sum(t.rounds for t in begun), "seconds": sum(t.seconds for t in begun)}


class SweepFolder:
    """OUT of a sweep. Opened anew it must be free; with `resume` it must hold the sweep that is asked for."""

    def __init__(self, path: Path, request: Request, resume: bool) -> None:
        self.path, self.request = path, request
        self._about: dict[str, Any] = {"schema": 1, "request": request.as_dict(), "meaning": PROTOCOLS[request.protocol],
                                       "methods": {}, "state": "running"}  # fmt: skip
        if resume:
            self._about = {**read_sweep(path), "state": "running"}
            if self._about["request"] != request.as_dict():
                raise RunFolderError(f"{path / SWEEP_FILE}: holds another sweep; --resume needs the same request, or none")
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            advice = "--resume continues it" if (path / SWEEP_FILE).exists() else "choose another --out"
            raise RunFolderError(f"{path} is not an empty folder; {advice}")
        make_folder(path)
        try:
            self.write()
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written ({error.strerror}); {remedy(error)}") from error

    def trial(self, method: str, settings: Mapping[str, Any]) -> Path:
        """The folder of a trial's run."""
        return self.path / method / "trials" / trial_name(settings)

    def final(self, method: str, seed: int) -> Path:
        """The folder of a final run."""
        return self.path / method / "final" / f"seed-{seed}"

    def note(self, method: str, **changes: Any) -> None:
        """Record something about a method; with another choice, the final runs of the last one are no longer its own."""
        before = self._about["methods"].get(method, {})
        after = {**before, **changes}
        if _settings(after) != _settings(before) and "final" not in changes:
            after.pop("final", None)
        self._about["methods"][method] = after
        self.write()

    def chosen(self, method: str) -> Settings | None:
        """The setting that was chosen for a method, None where there is none."""
        return _settings(self._about["methods"].get(method, {}))

    def end(self, state: str) -> dict[str, Any]:
        """The sweep is finished, or stopped; returns what sweep.json holds."""
        self._about["state"] = state
        self.write()
        return self._about

    def write(self) -> None:
        write_json(self.path / SWEEP_FILE, self._about)


def _settings(about: Mapping[str, Any]) -> Settings | None:
    found = about.get("chosen")
    return dict(found["settings"]) if found else None


def read_sweep(path: Path) -> dict[str, Any]:
    """The contents of OUT/sweep.json; a RunFolderError if there is none."""
    file = path / SWEEP_FILE
    if not file.exists():
        raise RunFolderError(f"{path}: no {SWEEP_FILE} here; name a folder that `raffed tune --out` made")
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        check_permitted(file, error)
        raise RunFolderError(f"{file}: not readable as JSON ({error}); start the sweep in a new folder") from error
    return found


def write_rows(folder: SweepFolder, method: str, trials: Sequence[Trial]) -> Path | None:
    """All rows of all trials of a method as one Parquet file: results/schema.py, and the columns trial and settings."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from raffed.results.atomic import replacing
    from raffed.results.writer import read_metrics

    word, tables = pa.dictionary(pa.int32(), pa.string()), []
    for trial in trials:
        where = folder.trial(method, trial.settings)
        if (where / RUN_FILE).exists():
            rows = read_metrics(where)
            for name, text in (("trial", trial.name), ("settings", json.dumps(trial.settings, sort_keys=True))):
                rows = rows.append_column(pa.field(name, word), pa.array([text] * rows.num_rows, word))
            tables.append(rows)
    if not tables:
        return None
    path = folder.path / method / "trials.parquet"
    with replacing(path) as temp:
        pq.write_table(pa.concat_tables(tables).unify_dictionaries(), temp, compression="zstd")
    return path


Watcher = Callable[[str, Trial, int], None]  # method, trial as it stands, rounds of a whole run
