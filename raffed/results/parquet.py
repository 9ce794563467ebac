"""Open Parquet files that anybody may have made: a few bytes may stand for billions of equal rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raffed.budget import allow_table


def open_table(
    source: bytes | Path, words: Sequence[str] = (), *, page_checksum_verification: bool = False
) -> pq.ParquetFile:
    """Open a Parquet file to read it.

    Args:
        source: The file, or its bytes.
        words: Columns of texts of which each is kept once, however many rows have it.
        page_checksum_verification: As pyarrow has it.

    Raises:
        ValueError: The file is damaged, or claims more memory than it may take (`raffed.budget`).
    """
    where = source if isinstance(source, Path) else pa.BufferReader(source)
    file = pq.ParquetFile(
        where, read_dictionary=list(words), page_checksum_verification=page_checksum_verification
    )
    try:
        allow_table(file.metadata, "its table")
    except ValueError:
        file.close()
        raise
    return file
