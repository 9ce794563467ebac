"""`raffed verify` says in which metrics the rows of a run differ from the rows made again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from raffed.results.metric import Row
from raffed.results.writer import table_of
from raffed.runs.verify import difference_notes, row_difference

RUN = {"run_id": "a", "method": "fedavg", "dataset": "digits", "partition": "iid:2", "seed": 0}


def rows(**values: float) -> pa.Table:
    return table_of([Row(1, "global", "test", name, value) for name, value in values.items()], RUN)


@pytest.mark.parametrize(
    ("recorded", "again", "said"),
    [
        ({"loss": 1.0}, {"loss": 1.0}, ""),
        ({"loss": 1.0, "accuracy": 0.5}, {"loss": 2.0, "accuracy": 0.5}, "other values of loss"),
        ({"loss": 1.0}, {"loss": 1.0, "macro_f1": 0.5}, "the folder has no rows of macro_f1"),
        ({"loss": 1.0, "macro_f1": 0.5}, {"loss": 1.0}, "only the folder has rows of macro_f1"),
        (
            {"loss": 1.0},
            {"loss": 2.0, "macro_f1": 0.5, "accuracy": 1.0},
            "other values of loss; the folder has no rows of accuracy, macro_f1",
        ),
    ],
)
def test_the_metrics_that_differ_are_named(
    recorded: dict[str, float], again: dict[str, float], said: str
) -> None:
    assert row_difference(rows(**recorded), rows(**again)) == said


def test_a_round_of_which_no_rows_are_left_lacks_all_metrics() -> None:
    nothing = rows(loss=1.0).filter(pc.equal(rows(loss=1.0)["round"], 2))
    assert row_difference(nothing, rows(loss=1.0)) == "the folder has no rows of loss"


def test_rounds_with_one_difference_share_a_line() -> None:
    found = {1: "other values of loss", 2: "", 3: "other values of loss", 4: "the folder has no rows of loss"}
    assert difference_notes(found) == (
        "metric rows of round 1, 3: other values of loss",
        "metric rows of round 4: the folder has no rows of loss",
    )
