"""The folder of a study: rows by their bits, in order, and a state that tells the truth."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raffed.reproductions.studies import STUDIES
from raffed.reproductions.studies.averaged_classifiers import LOCAL, angle
from raffed.reproductions.studies.record import Recorder, rows_sha256

from raffed.errors import UnknownNameError
from raffed.tables.studies import Work, execute_study


def work(folder: Path, study: str = "averaged_classifiers", seed: int = 0) -> Work:
    return Work(study, "smoke", seed, folder)


def about(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "study.json").read_text())
    return found


def test_a_study_reads_back_as_it_was_written(tmp_path: Path) -> None:
    picture = np.arange(12, dtype=np.float32).reshape(3, 2, 2) / 12
    with Recorder(work(tmp_path), {"epochs": 2}) as record:
        record.value("a", "b", 1, "norm", math.nan)
        record.points("a", "feature", [3, 4], np.array([[0.5, 1.5], [2.5, -1.0]]))
        record.image("a", "original", "0", picture)
    assert about(tmp_path)["state"] == "finished"
    assert about(tmp_path)["settings"] == {"epochs": 2}
    points = pq.read_table(tmp_path / "points.parquet").to_pylist()
    assert points[1] == {"panel": "a", "kind": "feature", "label": 4, "x": 2.5, "y": -1.0}
    (image,) = pq.read_table(tmp_path / "images.parquet").to_pylist()
    shape = image["channels"], image["height"], image["width"]
    assert np.array_equal(np.array(image["pixels"], np.float32).reshape(shape), picture)


def test_a_part_without_rows_is_not_written(tmp_path: Path) -> None:
    with Recorder(work(tmp_path), {}) as record:
        record.value("a", "b", 0, "norm", 1.0)
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["values.parquet"]
    assert list(about(tmp_path)["rows_sha256"]) == ["values"]  # type: ignore[call-overload]


def test_a_study_that_fails_is_not_finished_and_leaves_no_rows_of_an_earlier_one(tmp_path: Path) -> None:
    with Recorder(work(tmp_path), {}) as record:
        record.value("a", "b", 0, "norm", 1.0)

    def fail() -> None:
        assert about(tmp_path)["state"] == "running"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Recorder(work(tmp_path), {}):
        fail()
    assert about(tmp_path)["state"] == "failed"
    assert not list(tmp_path.glob("*.parquet"))


def test_the_hash_is_of_the_rows_and_not_of_the_file(tmp_path: Path) -> None:
    table = pa.table(
        {"panel": ["a", "b"], "value": [1.0, math.nan], "pixels": pa.array([[0.5], [0.25, 1.0]])}
    )
    pq.write_table(table, tmp_path / "a.parquet", compression="none", row_group_size=1)
    assert rows_sha256(pq.read_table(tmp_path / "a.parquet")) == rows_sha256(table)


@pytest.mark.parametrize(
    "other",
    [
        {"panel": ["b", "a"], "value": [1.0, 2.0], "pixels": [[0.5], [0.25, 1.0]]},
        {"panel": ["a", "b"], "value": [1.0, np.nextafter(2.0, 3.0)], "pixels": [[0.5], [0.25, 1.0]]},
        {"panel": ["a", "b"], "value": [1.0, 2.0], "pixels": [[0.5, 0.25], [1.0]]},
        {"panel": ["a", "b", "b"], "value": [1.0, 2.0, 2.0], "pixels": [[0.5], [0.25, 1.0], [1.0]]},
    ],
)
def test_any_change_of_the_rows_changes_the_hash(other: dict[str, list[object]]) -> None:
    table = pa.table({"panel": ["a", "b"], "value": [1.0, 2.0], "pixels": [[0.5], [0.25, 1.0]]})
    assert rows_sha256(pa.table(other)) != rows_sha256(table)


def test_the_mean_of_the_three_classifiers_is_the_sheet_s() -> None:
    """docs/papers/fedmr.md §E4: rows (⅓, 0), (−⅙, (√3+2)/6), (−⅙, −(√3+2)/6); 45° to (−√3/2, ½)."""
    y = (math.sqrt(3) + 2) / 6
    mean = LOCAL.mean(axis=0)
    assert np.allclose(mean, [(1 / 3, 0), (-1 / 6, y), (-1 / 6, -y)], atol=1e-15)
    assert angle(np.array([-math.sqrt(3) / 2, 0.5]), mean[1]) == pytest.approx(45.0, abs=1e-12)


def test_every_study_states_its_time_at_every_scale() -> None:
    assert STUDIES
    for name, info in STUDIES.items():
        assert set(info.seconds) == {"smoke", "proxy", "full"}, name
        assert set(info.data) <= set(info.seconds)


def test_an_unknown_study_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="nearest: averaged_classifiers"):
        execute_study(work(tmp_path, "averaged_classifier"))
