"""The folder of a study: study.json and up to three Parquet files of long rows.

    file             columns
    ---------------  ----------------------------------------------------------------------------------------
    values.parquet   panel, series, x, metric, value: curves and single numbers. x is an epoch, a round, ...,
                     and 0 where it has no meaning
    points.parquet   panel, kind, label, x, y: points of a scatter plot. kind is feature, proxy, ...; label is
                     the class
    images.parquet   panel, row, column, height, width, channels, pixels: pictures. There are
                     channels · height · width pixels in [0, 1]

Rows keep the order in which they were written. study.json is the last file to be marked as finished, and a
study that is not finished is executed again from its beginning.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raffed import Local
from raffed.results.files import replacing
from raffed.results.runfile import Noted, versions, write_json
from raffed.tables.items import STUDY_FILE, Work

Reals: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Values: TypeAlias = tuple[str | float | list[float], ...]
SOLVER = ("lr", "momentum", "weight_decay", "batch_size")  # of local training, which study.json holds
_TEXT, _REAL, _WHOLE = pa.string(), pa.float64(), pa.int32()
SCHEMAS: dict[str, pa.Schema] = {
    "values": pa.schema({"panel": _TEXT, "series": _TEXT, "x": _REAL, "metric": _TEXT, "value": _REAL}),
    "points": pa.schema({"panel": _TEXT, "kind": _TEXT, "label": _WHOLE, "x": _REAL, "y": _REAL}),
    "images": pa.schema(
        {
            "panel": _TEXT,
            "row": _TEXT,
            "column": _TEXT,
            "height": _WHOLE,
            "width": _WHOLE,
            "channels": _WHOLE,
            "pixels": pa.list_(pa.float32()),
        }
    ),
}


class Recorder:
    """Collects the rows of a study and writes them when its block succeeds.

    >>> with Recorder(work, {"epochs": 50}) as record:  # doctest: +SKIP
    ...     record.value("relu, 8 classes", "observed", epoch, "proxy norm", 1.5)
    """

    def __init__(self, work: Work, settings: Noted, local: Local | None = None) -> None:
        solver = {} if local is None else {name: getattr(local, name) for name in SOLVER}
        self._folder, self._began = work.folder, time.monotonic()
        self._rows: dict[str, list[Values]] = {name: [] for name in SCHEMAS}
        self._about: Noted = {
            "schema": 1,
            "name": work.study,
            "scale": work.scale,
            "seed": work.seed,
            "settings": {**settings, **solver},
            "versions": versions(),
            "device": work.device,
            "threads": work.threads,
            "state": "running",
        }

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write()
        for name in SCHEMAS:
            self._path(name).unlink(missing_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            state = "failed" if isinstance(error, Exception) else "stopped"
            self._write(state=state, error=f"{type(error).__name__}: {error}")
            return
        digests = {}
        for name, schema in SCHEMAS.items():
            if self._rows[name]:
                table = _table(self._rows[name], schema)
                with replacing(self._path(name)) as temp:
                    pq.write_table(table, temp, compression="zstd")
                digests[name] = rows_sha256(table)
        self._write(state="finished", rows_sha256=digests)

    def value(self, panel: str, series: str, x: float, metric: str, value: float) -> None:
        """Record one number; NaN means that there is none."""
        self._rows["values"].append((panel, series, float(x), metric, float(value)))

    def points(self, panel: str, kind: str, labels: Iterable[int], places: Reals) -> None:
        """Record points of the plane, places [n, 2], with the class of each."""
        for label, (x, y) in zip(labels, places.tolist(), strict=True):
            self._rows["points"].append((panel, kind, int(label), x, y))

    def image(self, panel: str, row: str, column: str, pixels: Reals) -> None:
        """Record a picture [channels, height, width] at a place of a grid."""
        channels, height, width = pixels.shape
        flat = pixels.astype(np.float32).ravel().tolist()
        self._rows["images"].append((panel, row, column, height, width, channels, flat))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.parquet"

    def _write(self, **changes: str | dict[str, str]) -> None:
        self._about = {**self._about, **changes}
        write_json(self._folder / STUDY_FILE, {**self._about, "seconds": time.monotonic() - self._began})


def rows_sha256(table: pa.Table) -> str:
    """Return the SHA-256 (hex) of the rows of a table of SCHEMAS, in their order.

    Words count by their letters and numbers by their bits; all NaNs are equal. The hash does not depend on
    compression, row groups or dictionaries.
    """
    digest = hashlib.sha256()
    for name in table.column_names:
        column = table[name].combine_chunks()
        many = pa.types.is_list(column.type)
        # Because Parquet renames the items of a list
        kind = f"list of {column.type.value_type}" if many else str(column.type)
        digest.update(json.dumps([name, kind, len(column)]).encode())
        if many:
            digest.update(np.diff(column.offsets.to_numpy()).astype("<i8").tobytes())
            column = column.flatten()
        if pa.types.is_string(column.type):
            digest.update(json.dumps(column.to_pylist()).encode())
        else:
            real = pa.types.is_floating(column.type)
            values = column.to_numpy(zero_copy_only=False).astype("<f8" if real else "<i8")
            digest.update((np.where(np.isnan(values), np.nan, values) if real else values).tobytes())
    return digest.hexdigest()


def _table(rows: Sequence[Values], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )
