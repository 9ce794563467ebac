"""A Parquet file of a few bytes can stand for billions of equal rows; one that does is not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raffed.results.parquet import MANY, open_table

BLOCK = 1_000_000


def written(path: Path, blocks: int, values: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Path:
    """`blocks` times a million rows of one column."""
    table = pa.table({"x": values})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(blocks):
            writer.write_table(table)
    return path


def test_a_file_whose_rows_are_too_many_for_its_bytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", MANY // BLOCK + 1, np.zeros(BLOCK, np.bool_))
    assert path.stat().st_size < 1_000_000
    for source in (path, path.read_bytes()):
        with pytest.raises(
            ValueError, match=r"it would have 11,000,000 rows, though it has [\d,]+ bytes only"
        ):
            open_table(source)


def test_repetitions_are_read_as_long_as_they_fit_into_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", 3, np.zeros(BLOCK, np.bool_))
    with open_table(path) as file:
        assert file.read().num_rows == 3 * BLOCK
