"""Metric rows survive resumes, joins and folder names; what is damaged is refused by name; their hash depends on
the rows and on nothing else.

tests/runtime/test_killed_writes.py kills runs at their writes.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.errors import RunFolderError, UsageError
from raffed.results.metric import Row
from raffed.results.metrics import METRICS
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


def test_a_part_says_its_rounds_run_and_schema_and_a_later_schema_is_refused(tmp_path: Path) -> None:
    write_rounds(tmp_path, (1, 2, 3))
    assert files_in(tmp_path) == ["part-000001-000003.parquet"]
    part = tmp_path / "metrics" / "part-000001-000003.parquet"
    table = pq.ParquetFile(part).read()
    assert int(table.schema.metadata[b"raffed.schema"]) == SCHEMA_VERSION
    assert b'"run_id": "r"' in table.schema.metadata[b"raffed.run"]
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


index = st.none() | st.integers(0, 3)
values = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 0.5])
rows = st.builds(
    lambda place, **others: Row(model=place[0], split=place[1], metric=place[2], **others),
    place=st.sampled_from([one.place for one in METRICS if not one.numbered]),
    round=st.integers(1, 6),
    value=values,
    client=index,
    stage=index,
    class_=index,
    n=index,
    bytes_up=index,
    bytes_down=index,
    seconds=st.none() | st.floats(0, 9),
)


def table_of(rows: list[Row], flush_after: set[int] = frozenset(), **run: str) -> pa.Table:  # type: ignore[assignment]
    """Write `rows` round by round, with a part boundary after each round in `flush_after`, and read them
    back.
    """
    names = {"run_id": "r", "method": "fedavg", "dataset": "schräg", "partition": "iid:10"} | run
    with TemporaryDirectory() as folder:
        writer = MetricsWriter(Path(folder), **names, seed=0)
        for round in sorted({row.round for row in rows}):
            writer.add(row for row in rows if row.round == round)
            if round in flush_after:
                writer.flush()
        writer.flush()
        return read_metrics(Path(folder))


def sha_of(*rows: Row, **run: str) -> str:
    return rows_sha256(table_of(list(rows), **run))


ROW = Row(1, "global", "test", "accuracy", 0.5, seconds=1.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(rows, max_size=12), st.sets(st.integers(1, 6)), st.randoms(use_true_random=False))
def test_neither_parts_nor_order_change_hash(found: list[Row], cuts: set[int], dice: random.Random) -> None:
    shuffled = list(found)
    dice.shuffle(shuffled)
    whole, parts = table_of(found), table_of(shuffled, cuts)
    assert rows_sha256(whole) == rows_sha256(parts)
    backwards = whole.take(list(range(whole.num_rows))[::-1]) if whole.num_rows else SCHEMA.empty_table()
    assert rows_sha256(whole) == rows_sha256(backwards)


@settings(max_examples=25, deadline=None)
@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_changing_any_field_but_the_seconds_changes_the_hash(found: list[Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(found) - 1))
    other = data.draw(rows)
    changed = [*found[:at], other, *found[at + 1 :]]

    def bits(row: Row) -> tuple[object, ...]:
        value = "nan" if row.value != row.value else struct.pack("<d", row.value)
        return (*row._replace(value=0.0, seconds=None), value)

    same = bits(found[at]) == bits(other)
    assert (rows_sha256(table_of(found)) == rows_sha256(table_of(changed))) is same


def test_the_run_s_name_and_the_wall_time_do_not_count_and_the_method_does_unless_it_is_ignored() -> None:
    assert sha_of(ROW, run_id="a") == sha_of(ROW._replace(seconds=99.0), run_id="b")
    one, two = table_of([ROW]), table_of([ROW], method="fedprox")
    assert rows_sha256(one) != rows_sha256(two)
    ignore = ("run_id", "seconds", "method")
    assert rows_sha256(one, ignore) == rows_sha256(two, ignore)


def test_the_server_is_not_client_zero_a_row_twice_is_not_a_row_once_and_every_nan_is_the_same() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    assert sha_of(ROW._replace(value=odd)) == sha_of(ROW._replace(value=float("nan")))
    assert sha_of(ROW) != sha_of(ROW._replace(client=0))
    assert sha_of(ROW) != sha_of(ROW, ROW)
    assert sha_of(ROW, method="a", dataset="b") != sha_of(ROW, method="b", dataset="a")
