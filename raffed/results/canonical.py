"""One order and one hash for metric rows, independent of the files they come from and of their
order there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raffed.results.schema import SCHEMA

_NULL = np.iinfo(np.int64).min
_NULL_BITS, _NAN_BITS = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x7FF8000000000000)
_ORDER = (
    "round",
    "client",
    "model",
    "split",
    "metric",
    "stage",
    "class",
    "value",
    "n",
    "bytes_up",
    "bytes_down",
    "method",
    "dataset",
    "partition",
    "seed",
)
_Codes = npt.NDArray[np.int64]


def sorted_rows(table: pa.Table) -> pa.Table:
    """Sort rows by round, client (server first), model, split, metric, stage and class, then by all other
    columns.
    """
    return table.take(pa.array(_order([_codes(table[name])[0] for name in _ORDER], table.num_rows)))


def rows_sha256(table: pa.Table, ignore: Collection[str] = ("run_id", "seconds")) -> str:
    """Return the SHA-256 (hex) of the rows of `table`, without the columns in `ignore`.

    The hash does not depend on the order of rows, on how they are divided into parts, or on dictionaries.
    Floats count by their IEEE-754 bits, so 0.0 and -0.0 differ; all NaNs are equal. Two executions of a run
    have equal hashes if and only if all their values have equal bits (up to collisions of SHA-256).
    """
    names = [field.name for field in SCHEMA if field.name not in ignore]
    codes, words = zip(*(_codes(table[name]) for name in names), strict=True)
    order = _order(
        [codes[names.index(name)] for name in _ORDER if name in names] + list(codes), table.num_rows
    )
    digest = hashlib.sha256(json.dumps({"rows": table.num_rows, "columns": names, "words": words}).encode())
    for column in codes:
        digest.update(column[order].astype("<i8").tobytes())
    return digest.hexdigest()


def _order(keys: list[_Codes], rows: int) -> _Codes:
    return np.lexsort(keys[::-1]).astype(np.int64) if rows else np.zeros(0, np.int64)


def _codes(column: pa.ChunkedArray) -> tuple[_Codes, list[str]]:
    """Encode a column as int64 with the same order and the same equalities, and return its words if it
    has any.
    """
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        return _word_codes(column)
    if pa.types.is_floating(column.type):
        return _float_codes(column), []
    return np.asarray(pc.fill_null(column.cast(pa.int64()), _NULL).to_numpy(), np.int64), []


def _word_codes(column: pa.ChunkedArray) -> tuple[_Codes, list[str]]:
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    words = encoded.dictionary.to_pylist()
    order = sorted(range(len(words)), key=words.__getitem__)
    rank = np.zeros(len(words), np.int64)
    rank[order] = np.arange(len(words))
    return rank[np.asarray(encoded.indices.to_numpy(), np.int64)], sorted(words)


def _float_codes(column: pa.ChunkedArray) -> _Codes:
    values = np.array(pc.fill_null(column, 0.0).to_numpy(), np.float64)
    bits = np.where(np.isnan(values), _NAN_BITS, values.view(np.uint64))
    codes = np.where(column.is_null().to_numpy(), _NULL_BITS, bits).view(np.int64)
    # The bits of negative floats sort backwards. Flipping all bits except the sign reverses that, and is
    # one-to-one.
    return np.where(codes < 0, codes ^ np.int64(0x7FFFFFFFFFFFFFFF), codes)
