"""The trials of a method as tables in Parquet: one row a trial, and all their metric rows."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.config.validation import Json
from raffed.results.runfile import RUN_FILE
from raffed.search.folder import SweepFolder
from raffed.search.trials import Trial

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_FILE = "trial_rows.parquet"  # metric rows of all trials
TRIALS_FILE = "trials.parquet"  # one row a trial


def write_rows(folder: SweepFolder, method: str, trials: Sequence[Trial]) -> Path | None:
    """Write the metric rows of all trials of a method into one Parquet file.

    It has the columns of results/schema.py and the columns trial and settings.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from raffed.results.atomic import replacing
    from raffed.results.writer import read_metrics

    word, tables = pa.dictionary(pa.int32(), pa.string()), []
    for trial in trials:
        where = folder.trial(method, trial.settings)
        if (where / RUN_FILE).exists():
            rows = read_metrics(where)
            for name, text in (
                ("trial", trial.name),
                ("settings", json.dumps(trial.settings, sort_keys=True)),
            ):
                rows = rows.append_column(pa.field(name, word), pa.array([text] * rows.num_rows, word))
            tables.append(rows)
    if not tables:
        return None
    path = folder.of(method) / ROWS_FILE
    with replacing(path) as temp:
        pq.write_table(pa.concat_tables(tables).unify_dictionaries(), temp, compression="zstd")
    return path


def write_trials(folder: SweepFolder, method: str, trials: Sequence[Trial]) -> Path | None:
    """Write one row for each trial of a method into a Parquet file.

    The columns are number, trial, state, score (a fraction, null unless finished), rounds, seconds, and one
    for each argument that was searched.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from raffed.results.atomic import replacing

    if not trials:
        return None
    axes = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    columns = {
        "number": pa.array([trial.number for trial in trials], pa.int64()),
        "trial": pa.array([trial.name for trial in trials], pa.string()),
        "state": pa.array([trial.state for trial in trials], pa.string()),
        "score": pa.array(
            [None if math.isnan(trial.score) else trial.score for trial in trials], pa.float64()
        ),
        "rounds": pa.array([trial.rounds for trial in trials], pa.int64()),
        "seconds": pa.array([trial.seconds for trial in trials], pa.float64()),
        **{axis: _column([trial.settings.get(axis) for trial in trials]) for axis in axes},
    }
    path = folder.of(method) / TRIALS_FILE
    with replacing(path) as temp:
        pq.write_table(pa.table(columns), temp, compression="zstd")
    return path


def _column(values: Sequence[Json]) -> pa.Array[pa.Scalar[pa.DataType]]:
    """Return values as a column: of their own type if they share one, else as JSON text."""
    import pyarrow as pa

    plain = all(value is None or isinstance(value, (bool, int, float, str)) for value in values)
    if plain:
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(values)
    return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
