"""Open Parquet files that anybody may have made: a few bytes may stand for billions of equal rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MANY = 10_000_000  # rows below which a file is never refused: they take about a GB in memory
ROWS_PER_BYTE = 4  # raffed's own files have at most 0.6; more is a sign of endless repetition


def open_table(source: bytes | Path, **options: bool) -> pq.ParquetFile:
    """Open a Parquet file to read it.

    Args:
        source: The file, or its bytes.
        options: Arguments of pyarrow's ParquetFile.

    Raises:
        ValueError: The file is damaged, or has so many rows for its size that it can only have been made to
            fill the memory.
    """
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    file = pq.ParquetFile(source if isinstance(source, Path) else pa.BufferReader(source), **options)
    rows = int(file.metadata.num_rows)
    if rows > MANY and rows > ROWS_PER_BYTE * size:
        file.close()
        raise ValueError(f"it would have {rows:,} rows, though it has {size:,} bytes only")
    return file
