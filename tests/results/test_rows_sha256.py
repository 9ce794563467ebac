"""The hash of metric rows depends on the rows and on nothing else."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.results.metric import Row
from raffed.results.metrics import METRICS
from raffed.results.rows import SCHEMA
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256

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


def test_nans_with_different_payloads_are_one_nan() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    assert sha_of(ROW._replace(value=odd)) == sha_of(ROW._replace(value=float("nan")))


def test_the_server_is_not_client_zero_and_a_row_twice_is_not_a_row_once() -> None:
    assert sha_of(ROW) != sha_of(ROW._replace(client=0))
    assert sha_of(ROW) != sha_of(ROW, ROW)
    assert sha_of(ROW, method="a", dataset="b") != sha_of(ROW, method="b", dataset="a")
