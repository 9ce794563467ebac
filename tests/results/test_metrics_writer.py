"""Metric rows survive resumes, joins and folder names; what is damaged is refused by name.

tests/runtime/test_killed_writes.py kills runs at their writes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from raffed.errors import RunFolderError, UsageError
from raffed.results.metric import Row
from raffed.results.rows import SCHEMA, SCHEMA_VERSION
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256, rows_until


def writer(folder: Path) -> MetricsWriter:
    return MetricsWriter(folder, run_id="r", method="fedavg", dataset="digits", partition="iid:10", seed=7)


def accuracy(round: int, value: float = 0.5, **more: int | str) -> Row:
    return Row(
        **({"round": round, "model": "global", "split": "test", "metric": "accuracy", "value": value} | more)
    )


def write_rounds(folder: Path, *parts: tuple[int, ...]) -> MetricsWriter:
    """One part for each tuple of rounds; two rows a round."""
    into = writer(folder)
    for rounds in parts:
        into.add(row for r in rounds for row in (accuracy(r, r / 100), accuracy(r, r / 200, class_=0)))
        into.flush()
    return into


def rounds_in(folder: Path) -> list[int]:
    return read_metrics(folder)["round"].to_pylist()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "metrics").iterdir())


def test_a_row_comes_back_as_it_was_added_and_null_for_what_it_does_not_say(tmp_path: Path) -> None:
    into = writer(tmp_path)
    assert into.flush() is None
    places = {"client": 4, "stage": 1, "class_": 2, "n": 5, "bytes_up": 6, "bytes_down": 7, "seconds": 8.5}
    into.add([Row(3, "local", "train", "loss", 0.1, **places), accuracy(3, np.float32(0.5))])
    into.flush()
    run = {"run_id": "r", "method": "fedavg", "dataset": "digits", "partition": "iid:10", "seed": 7}
    silent = ["client", "stage", "class", "n", "bytes_up", "bytes_down", "seconds"]
    known = dict(zip(silent, places.values(), strict=True))
    full = {**run, "round": 3, **known, "model": "local", "split": "train", "metric": "loss", "value": 0.1}
    bare = {**full, **dict.fromkeys(silent), "model": "global", "split": "test", "metric": "accuracy"}
    assert read_metrics(tmp_path).to_pylist() == [{**bare, "value": 0.5}, full]
    assert full.keys() == set(SCHEMA.names)
    assert all(field.metadata[b"meaning"] for field in SCHEMA)


def test_a_part_carries_its_rounds_in_its_name_and_schema_and_run_in_its_metadata(tmp_path: Path) -> None:
    write_rounds(tmp_path, (1, 2, 3))
    assert files_in(tmp_path) == ["part-000001-000003.parquet"]
    about = pq.read_schema(tmp_path / "metrics" / "part-000001-000003.parquet").metadata
    assert int(about[b"raffed.schema"]) == SCHEMA_VERSION
    assert b'"run_id": "r"' in about[b"raffed.run"]


def test_rows_are_sorted_and_a_folder_named_like_a_hive_partition_adds_no_column(tmp_path: Path) -> None:
    """By round, the server before the clients."""
    into = writer(tmp_path / "mu=0.1")
    into.add([accuracy(2), accuracy(1, client=1), accuracy(1, client=0), accuracy(1)])
    into.flush()
    found = read_metrics(tmp_path / "mu=0.1")
    assert found.schema.names == SCHEMA.names
    places = [(row["round"], row["client"]) for row in found.to_pylist()]
    assert places == [(1, None), (1, 0), (1, 1), (2, None)]


def test_a_flushed_round_is_closed_until_drop_after_reopens_it(tmp_path: Path) -> None:
    write_rounds(tmp_path, (1, 2, 3))
    again = writer(tmp_path)
    with pytest.raises(UsageError, match=r"round = 3 .* up to round 3; call drop_after\(2\)"):
        again.add([accuracy(3)])
    again.drop_after(2)
    again.add([accuracy(3)])


@pytest.mark.parametrize("after", [0, 2, 4, 7])
def test_drop_after_leaves_exactly_the_rounds_up_to_it(tmp_path: Path, after: int) -> None:
    into = write_rounds(tmp_path, (1, 2, 3), (4,), (5, 6, 7))
    into.add([accuracy(8)])
    into.drop_after(after)
    assert into.flush() is None, "unwritten rows of later rounds are forgotten too"
    assert rounds_in(tmp_path) == [r for r in range(1, after + 1) for _ in range(2)]
    last = files_in(tmp_path)[-1:]
    assert last == [] or last[0].endswith(f"-{after:06d}.parquet")


def test_a_run_that_resumes_has_the_hash_of_one_that_never_stopped(tmp_path: Path) -> None:
    write_rounds(tmp_path / "whole", (1, 2, 3, 4, 5, 6))
    write_rounds(tmp_path / "stopped", (1, 2), (3, 4))
    writer(tmp_path / "stopped").drop_after(3)
    write_rounds(tmp_path / "stopped", (4,), (5, 6))
    assert rows_sha256(read_metrics(tmp_path / "whole")) == rows_sha256(read_metrics(tmp_path / "stopped"))


def test_a_part_in_which_one_bit_has_changed_is_refused_by_name(tmp_path: Path) -> None:
    """Parquet itself would read many of them as other numbers."""
    write_rounds(tmp_path, (1,))
    (part,) = (tmp_path / "metrics").iterdir()
    raw, columns = part.read_bytes(), pq.ParquetFile(part).metadata.row_group(0)
    refused = 0
    for column in map(columns.column, range(len(SCHEMA))):
        end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
        # The last byte of the column's last page
        part.write_bytes(bytes([*raw[: end - 1], raw[end - 1] ^ 1, *raw[end:]]))
        with pytest.raises(RunFolderError, match="damaged"):
            read_metrics(tmp_path)
        refused += 1
    assert refused == len(SCHEMA)
    writer(tmp_path).drop_after(0)  # a damaged part that goes anyway need not be readable
    assert rounds_in(tmp_path) == []


def test_rounds_have_rows_until_a_part_is_missing_or_damaged(tmp_path: Path) -> None:
    write_rounds(tmp_path, (1, 2), (3,), (4, 5))
    assert rows_until(tmp_path)[0] == 5
    (tmp_path / "metrics" / "part-000004-000005.parquet").write_bytes(b"PAR1")
    assert rows_until(tmp_path)[0] == 3
    assert "part-000004-000005.parquet: damaged" in rows_until(tmp_path)[1]
    (tmp_path / "metrics" / "part-000003-000003.parquet").unlink()
    assert rows_until(tmp_path)[0] == 2
    (tmp_path / "metrics" / "part-000001-000002.parquet").unlink()
    (tmp_path / "metrics" / "part-000004-000005.parquet").unlink()
    missing = f"{tmp_path / 'metrics'}: no part has the rows of round 1; put back the file that has them"
    assert rows_until(tmp_path) == (0, missing)


def test_a_part_of_a_later_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    write_rounds(tmp_path, (1,))
    (part,) = (tmp_path / "metrics").iterdir()
    table = pq.ParquetFile(part).read()
    pq.write_table(table.replace_schema_metadata({b"raffed.schema": b"99"}), part)
    with pytest.raises(RunFolderError, match=f"schema 99, but this raffed reads schema {SCHEMA_VERSION}"):
        read_metrics(tmp_path)


def test_a_kill_between_joining_and_removing_shows_every_row_once(tmp_path: Path) -> None:
    """The joined part is there, the others still are; then a writer opens the folder and drops rounds."""
    write_rounds(tmp_path, (1,), (2, 3), (4,))
    rows, digest = rounds_in(tmp_path), rows_sha256(read_metrics(tmp_path))
    kept = {path.name: path.read_bytes() for path in (tmp_path / "metrics").glob("part-*")}
    writer(tmp_path).join()
    assert files_in(tmp_path) == ["part-000001-000004.parquet"]
    assert rows_sha256(read_metrics(tmp_path)) == digest
    for name, data in kept.items():
        (tmp_path / "metrics" / name).write_bytes(data)
    assert rounds_in(tmp_path) == rows
    writer(tmp_path).drop_after(3)
    assert rounds_in(tmp_path) == [number for number in rows if number <= 3]
