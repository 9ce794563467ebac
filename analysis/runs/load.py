"""Read run folders into DataFrames. What cannot be read is named and left out; the rest is still reported."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from raffed.results.metric import Metric
from raffed.results.rows import BY_SAMPLES

from .clients import SCORES, last_accuracies
from .files import JsonDict, JsonObject
from .origins import origin
from .run_files import COLUMNS, DAMAGED, Parts, missing_rounds, number, read_parts, read_run_file

if TYPE_CHECKING:
    from pandas.core.groupby import DataFrameGroupBy

T = TypeVar("T")
SCORES_OF_CLIENTS = ("client", "round", "value")
Reader = Callable[[Path], JsonObject]


class NoRunsError(ValueError):
    """None of the given paths holds a run that can be read. The message gives the reason for each path."""


@dataclass(frozen=True)
class Runs:
    """All runs that were found below the given paths. `load_runs` makes this object.

    Attributes:
        metrics: the server's rows of all runs, as raffed/results/metric.py describes them. The column `run`
            holds a name that is unique in this object. The columns stage, class, n and bytes are floats; NaN
            stands for the schema's null.
        runs: one row for each run, indexed by `run`. Its columns are folder, run_id, method, dataset,
            partition, seed, state, rounds_done, rounds_planned, seconds, and others. The columns
            client_seconds and client_sample_seconds are medians of a client's seconds in a round and of its
            seconds per sample. `damage` names what is damaged or lacking of the rows; it is "" if nothing is.
            The configuration is flattened to columns such as `config.local.lr`.
        files: the contents of each run.json, by `run`.
        unreadable: the path of every folder or file that was left out, with the reason.
        clients: columns run, client, round, value. The value is the accuracy of the client's personal model
            on its local test set in the last round in which it took part, a fraction in [0, 1].
        scores: columns run, client, stage, metric, round, value. It holds the last score of each client,
            stage and metric.
        by_samples: columns run, model, metric, round, value. The value is Σ correct / Σ samples over the
            clients that were scored on their local test parts in this round.
        names: reference of a method → the name that tables and figures show. Others show their reference.
    """

    metrics: pd.DataFrame
    runs: pd.DataFrame
    files: Mapping[str, JsonObject]
    unreadable: Mapping[str, str]
    clients: pd.DataFrame
    scores: pd.DataFrame
    by_samples: pd.DataFrame
    names: Mapping[str, str] = field(default_factory=dict)
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, computed once for this object and `key`."""
        if key not in self._known:
            self._known[key] = make()
        value: T = self._known[key]
        return value

    def called(self, names: Mapping[str, str]) -> Runs:
        """Return the same runs, with methods called by these names."""
        return self.once(("called", *names.items()), lambda: replace(self, names=names, _known={}))

    def without(self, names: Collection[str]) -> Runs:
        """Return the runs except those with the given names."""
        if not names:
            return self
        return self.once(("without", frozenset(names)), lambda: self._without(names))

    def _without(self, names: Collection[str]) -> Runs:
        kept = {name: file for name, file in self.files.items() if name not in names}
        metrics, clients, scores, together = (
            rows[rows["run"].isin(list(kept))]
            for rows in (self.metrics, self.clients, self.scores, self.by_samples)
        )
        metrics = metrics.assign(run=metrics["run"].cat.remove_unused_categories())
        about = self.runs.loc[list(kept)]
        return Runs(metrics, about, kept, self.unreadable, clients, scores, together, self.names)

    def series(self, metric: Metric) -> pd.DataFrame:
        """Return the server's rows over all classes of one metric, by round."""

        def compute() -> pd.DataFrame:
            rows = self.metrics
            return rows[rows_of(rows, metric) & rows["class"].isna()].sort_values("round", kind="stable")

        return self.once(metric.place, compute)

    def matrix(self, metric: Metric) -> pd.DataFrame:
        """Return a metric of every run (columns) after every round (rows) that any of them measured.

        It is NaN where a run did not measure.
        """

        def compute() -> pd.DataFrame:
            rows = self.series(metric)
            return named(rows).pivot_table(
                index="round", columns="run", values="value", observed=True, dropna=False
            )

        return self.once(("matrix", metric.place), compute)


def rows_of(rows: pd.DataFrame, metric: Metric) -> pd.Series[bool]:
    """Return which rows are a metric's."""
    model, split, name = metric.place
    return (rows["model"] == model) & (rows["split"] == split) & (rows["metric"] == name)


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose column `run` can be grouped by.

    pandas 3.1 gives the groups of an empty categorical column with more than 127 names a kind of code that it
    cannot align with the groups of other columns.
    """
    return rows if len(rows) else rows.astype({"run": object})


def by_run(rows: pd.DataFrame) -> DataFrameGroupBy[Any, Any]:
    """Return the rows of each run that has any."""
    return named(rows).groupby("run", observed=True)


def reasons(runs: Runs) -> str:
    """Return in one line what was left out, and why."""
    return "; ".join(f"{name}: {reason}" for name, reason in runs.unreadable.items())


def read_runs(paths: Iterable[Path | str], reader: Reader = read_run_file) -> Runs:
    """Read runs like `load_runs`, but accept that there are none.

    Args:
        paths: run folders, or folders that hold some.
        reader: reads and checks the run.json of a folder. It raises ValueError if the file is damaged.
    """
    unreadable: dict[str, str] = {}
    folders: dict[Path, Path] = {}
    for path in map(Path, paths):
        run_folders, headless = find_run_folders(path)
        folders |= {folder.resolve(): folder for folder in reversed(run_folders)}
        unreadable |= headless
        if not run_folders and not headless:
            unreadable[str(path)] = (
                "there is no run.json at or below it" if path.is_dir() else "there is no such folder"
            )
    files: dict[str, JsonObject] = {}
    named = {}
    for name, folder in folder_names(sorted(folders.values())).items():
        file = _read_run_file(folder, unreadable, reader)
        if file is not None:
            files[name], named[name] = file, folder
    # Reading Parquet releases the interpreter lock.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        read = dict(zip(named, pool.map(read_parts, named.values(), files.values()), strict=True))
    damage = {name: run.unreadable or missing_rounds(named[name], files[name]) for name, run in read.items()}
    for lost in damage.values():
        unreadable |= lost
    rows = []
    for name in list(read):
        try:
            about_run = _about(files[name], read[name]) | {"damage": _damage(damage[name])}
            rows.append({"run": name, "folder": str(named[name]), **about_run})
        except DAMAGED as error:
            unreadable[str(named[name])] = f"run.json is damaged ({type(error).__name__}: {error})"
            del read[name], files[name]
    about = pd.DataFrame(rows, columns=None if rows else ["run", "folder", "damage"]).set_index("run")
    last = {name: last_accuracies(run.scores) for name, run in read.items()}
    reduced = (
        _stacked(last, SCORES_OF_CLIENTS),
        _stacked({name: run.scores for name, run in read.items()}, SCORES),
        _stacked({name: run.by_samples for name, run in read.items()}, BY_SAMPLES),
    )
    return Runs(_joined(read), about, files, unreadable, *reduced)


def _joined(read: Mapping[str, Parts]) -> pd.DataFrame:
    """Return the server's rows of all runs, with the run as a categorical column."""
    names = list(read)
    table = pa.concat_tables(
        [COLUMNS.empty_table(), *(run.server for run in read.values())]
    ).unify_dictionaries()
    frame: pd.DataFrame = table.to_pandas()
    codes = np.repeat(np.arange(len(names)), [run.server.num_rows for run in read.values()])
    frame["run"] = pd.Categorical.from_codes(codes, pd.Index(names, dtype=object))
    return frame


def _stacked(frames: Mapping[str, pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    filled = [frame.assign(run=name) for name, frame in frames.items() if len(frame)]
    wanted = ["run", *columns]
    return pd.concat(filled, ignore_index=True)[wanted] if filled else pd.DataFrame(columns=wanted)


def flatten(nested: JsonObject, prefix: str = "") -> JsonDict:
    """Flatten nested objects: {"local": {"lr": 0.1}} becomes {"local.lr": 0.1}.

    Lists become their JSON text.
    """
    flat: JsonDict = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return flat


def section(file: JsonObject, name: str) -> JsonObject:
    """Return the object under `name`, or an empty one if it is missing or is not an object."""
    value = file.get(name)
    return value if isinstance(value, Mapping) else {}


def _read_run_file(folder: Path, unreadable: dict[str, str], reader: Reader) -> JsonObject | None:
    try:
        file = reader(folder)
    except DAMAGED as error:
        why = str(error).removeprefix(f"{folder / 'run.json'}: ")
        unreadable[str(folder)] = f"run.json is damaged ({why})"
        return None
    if (folder / "metrics").is_dir():
        return file
    unreadable[str(folder)] = (
        f"metrics is {'a file' if (folder / 'metrics').exists() else 'missing'}, but must be a folder"
    )
    return None


def _about(file: JsonObject, read: Parts) -> JsonDict:
    """Return a run's row of `Runs.runs`. What was measured takes precedence over what run.json says."""
    config = section(file, "config")
    data, federation = section(config, "data"), section(config, "federation")
    said = {"method": config.get("method"), "dataset": data.get("dataset"), "partition": data.get("split")}
    about: JsonDict = {name: _text(read.constant.get(name, value)) for name, value in said.items()}
    about["seed"] = number(read.constant.get("seed", config.get("seed")))
    done = (
        pc.max(read.server["round"]).as_py() if read.server.num_rows else number(file.get("rounds_done")) or 0
    )
    about |= {"rounds_done": done, "rounds_planned": number(federation.get("rounds"))}
    about |= {name: number(file.get(name)) for name in ("seconds", "clients")}
    about |= dict(zip(("client_seconds", "client_sample_seconds"), read.seconds, strict=True))
    for name in ("run_id", "state", "execution", "started", "commit", "partition_sha256", "error"):
        about[name] = _text(file.get(name))
    origin(file)  # raises if these fields are damaged
    nested = {name: section(file, name) for name in ("config", "versions", "hashes", "hardware")}
    return {**about, **flatten(nested)}


def _damage(lost: Mapping[str, str]) -> str:
    """Return what is the matter with a run's rows: the first place, and how many more there are."""
    if not lost:
        return ""
    (place, reason), *more = lost.items()
    return f"{Path(place).name}: {reason}" + (f", and {len(more)} more" if more else "")


def _text(value: object) -> str:
    return "" if value is None else str(value)


_OF_A_RUN = frozenset(
    {
        *("metrics", "checkpoints", "vaults", "code"),
        *("run.json", "partition.npz", "final.safetensors", "best.safetensors", ".lock"),
    }
)
_CHECKPOINT = re.compile(r"round-\d{6,9}")


def find_run_folders(path: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the folders with a run.json, and those that should have one, with the reason."""
    folders, headless = [], {}
    for folder, below, names in os.walk(path):
        below.sort()
        if "run.json" in names:
            below.clear()
            folders.append(Path(folder))
        elif why := _headless(Path(folder), below, names):
            below[:] = [name for name in below if name not in _OF_A_RUN]
            headless[str(Path(folder))] = why
    return folders, headless


def folder_names(folders: list[Path]) -> dict[str, Path]:
    """Return folder names if they are unique, else paths below the common folder."""
    if len({folder.resolve().name for folder in folders}) == len(folders):
        return {folder.resolve().name: folder for folder in folders}
    base = os.path.commonpath([folder.resolve() for folder in folders])
    return {folder.resolve().relative_to(base).as_posix(): folder for folder in folders}


def _headless(folder: Path, below: Sequence[str], names: Sequence[str]) -> str:
    """Return why a folder is no run although it looks like one; "" if it does not look like one.

    Args:
        folder: the folder, which holds no file run.json.
        below: the names of the folders in it.
        names: the names of its files.
    """
    if "run.json" in below:
        return "run.json is a folder, but must be a file; put back a copy of it"
    if any(_is_part(name) for name in names):
        if (folder.parent / "run.json").is_file():
            return f"it holds the rows of a run, but is not its folder; give {folder.parent}"
        return _lacking("rows of a run")
    if "metrics" in below and any(_is_part(path.name) for path in _inside(folder / "metrics")):
        return _lacking("metrics with rows of a run")
    if "checkpoints" in below and any(
        _CHECKPOINT.fullmatch(path.name) for path in _inside(folder / "checkpoints")
    ):
        return _lacking("checkpoints of a run")
    begun = sorted({"metrics", "checkpoints"} & set(below))
    if begun and {*below, *names} <= _OF_A_RUN and not any(_inside(folder / name) for name in begun):
        return _lacking(f"{' and '.join(begun)}, empty,")
    return ""


def _lacking(what: str) -> str:
    return f"it has {what} but no run.json; put back a copy of it"


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet")


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
