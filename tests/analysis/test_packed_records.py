"""Packed records give back what was packed; the committed ones have the hashes that their runs recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raffed.analysis import load_runs
from raffed.analysis.__main__ import main as report
from raffed.reproductions.pages.pack_records import README, main, tables_of
from raffed.reproductions.pages.packed.files import (
    pack_folder,
    read_records,
    unpack_folder,
)
from raffed.reproductions.pages.packed.index import difference, merged, shared

from raffed.results.metric import Row
from raffed.results.runfile import write_json
from raffed.results.storage import DamagedRecordsError, packed_below, unpacked
from raffed.results.writer import rows_sha256, table_of, write_part
from tests.forging import FEWEST, sha256

RECORDS = Path(__file__).parents[2] / "reproductions" / "records"
ITEMS = packed_below(RECORDS)
SMALL = ("fedmr-causes", "fedmr-tuning", "gldp-causes", "leakage")
PART = "part-000001-000002.parquet"
HASHES = ["aa" * 32, "ff" * 32]


def every_item(*small: str) -> list[object]:
    """The committed records, of which the large ones are for `make test-slow`."""
    marks = {True: (), False: (pytest.mark.slow,)}
    return [pytest.param(one, id=one.name, marks=marks[one.name in small]) for one in ITEMS]


def rows() -> list[Row]:
    """Rows with whole numbers over n, numbers that are none, and seconds of clients and of the server."""
    found = []
    for number in (1, 2):
        found += [
            Row(number, "global", "train", "loss", 2.0 / number, n=30, bytes_up=8, seconds=1.5),
            Row(number, "global", "test", "accuracy", 7 / 9, n=9),
            Row(number, "global", "test", "macro_f1", 0.1234567, n=9),
            Row(number, "local", "train", "loss", float("nan"), client=3, n=30, seconds=0.25),
            Row(number, "personal", "local_test", "accuracy", 1 / 3, client=3, stage=1, n=6),
            Row(number, "personal", "local_test", "accuracy", -0.0, client=4, n=6),
        ]
    return found


def make_run(folder: Path, files: dict[str, str] | None = None) -> pa.Table:
    """Write a run of two rounds, and return its rows."""
    said = {"run_id": folder.name, "method": "map", "dataset": "digits", "partition": "p10c2", "seed": 0}
    table = table_of(rows(), said)
    part = folder / "metrics" / "part-000001-000002.parquet"
    part.parent.mkdir(parents=True)
    write_part(part, table, said)
    about = {
        **FEWEST,
        "run_id": folder.name,
        "config": {"method": "map", "args": {}, "local": {"lr": 0.1, "epochs": 1.0}, "seed": 0},
        "hashes": {"metrics": rows_sha256(table), "weights": HASHES[-1]},
        "round_hashes": HASHES,
        "rounds_done": 2,
        "segments": [{**FEWEST["segments"][0], "to": 2}],
        "state": "finished",
        "files": files or {f"metrics/{part.name}": sha256(part)},
    }
    write_json(folder / "run.json", about)
    return table


def test_what_run_json_says_comes_back_and_rows_with_their_recorded_hash(tmp_path: Path) -> None:
    given = {name: make_run(tmp_path / "runs" / name) for name in ("a", "b")}
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    unpack_folder(tmp_path / "packed", tmp_path / "again")
    for name, table in given.items():
        run = tmp_path / "again" / name
        again, before = (
            json.loads((folder / "run.json").read_bytes()) for folder in (run, tmp_path / "runs" / name)
        )
        # The file of rows is made anew without the seconds of single clients, so it has another hash
        new = {"files": {f"metrics/{PART}": sha256(run / "metrics" / PART)}, "contents_sha256": ANY}
        assert again == {**before, **new}
        found = pq.read_table(run / "metrics" / PART)
        assert rows_sha256(found) == rows_sha256(table)
        assert rows_sha256(found, ignore=("seconds",)) == rows_sha256(table, ignore=("seconds",))


def test_of_the_seconds_those_of_rounds_are_kept_and_those_of_single_clients_are_not(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    found = pq.read_table(tmp_path / "packed" / "records.parquet").to_pylist()
    assert {row["seconds"] for row in found if row["client"] is not None} == {None}
    assert [row["seconds"] for row in found if row["seconds"] is not None] == [1.5, 1.5]


def test_a_share_is_kept_as_hits_of_n_and_the_weights_of_a_round_beside_its_loss(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    found = pq.read_table(tmp_path / "packed" / "records.parquet").to_pylist()
    right = [row["hits"] for row in found if row["metric"] == "accuracy" and row["model"] == "global"]
    assert right == [7, 7]
    losses = sorted((row["round"], row["weights"].hex()) for row in found if row["weights"])
    assert losses == list(enumerate(HASHES, start=1))
    assert HASHES[0] not in (tmp_path / "packed" / "records.json").read_text()


def test_a_run_with_hashes_of_its_files_can_be_read_after_unpacking(tmp_path: Path) -> None:
    make_run(tmp_path / "first" / "a")
    part = "metrics/part-000001-000002.parquet"
    make_run(tmp_path / "runs" / "a", {part: "0" * 64, "final.safetensors": "1" * 64})
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    index = json.loads((tmp_path / "packed" / "records.json").read_text())
    assert index["shared"]["files"][part] == "0" * 64  # the one that the run recorded is kept
    runs = load_runs(tmp_path / "packed")
    assert not runs.unreadable


def test_tables_that_are_no_metric_rows_come_back_in_their_order(tmp_path: Path) -> None:
    study = tmp_path / "runs" / "study-a"
    study.mkdir(parents=True)
    write_json(study / "study.json", {"state": "finished"})
    values = pa.table({"panel": ["b", "a"], "x": [1.0, 0.0], "pixels": [[0.5, 1.0], [0.25]]})
    pq.write_table(values, study / "values.parquet")
    make_run(tmp_path / "runs" / "a")
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    assert read_records(tmp_path / "packed").tables["study-a/values.parquet"].equals(values)


@pytest.mark.parametrize("damage", ["rows changed", "rows missing", "later schema", "leads out"])
def test_damaged_records_are_refused_in_one_line_that_names_the_folder(tmp_path: Path, damage: str) -> None:
    make_run(tmp_path / "runs" / "a")
    packed = tmp_path / "packed"
    pack_folder(tmp_path / "runs", packed)
    index = json.loads((packed / "records.json").read_text())
    if damage == "rows changed":
        (packed / "records.parquet").write_bytes((packed / "records.parquet").read_bytes()[:-1])
    elif damage == "rows missing":
        (packed / "records.parquet").unlink()
    elif damage == "later schema":
        index["schema"] = 2
    else:
        index["files"]["../outside.json"] = {}
    (packed / "records.json").write_text(json.dumps(index))
    with pytest.raises(DamagedRecordsError, match="packed") as refused:
        unpack_folder(packed, tmp_path / "again" / "below")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "again" / "outside.json").exists()


def test_a_changed_row_is_found_by_the_check_although_the_files_belong_together(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    packed = tmp_path / "packed"
    pack_folder(tmp_path / "runs", packed)
    index = json.loads((packed / "records.json").read_text())
    (name,) = index["parquet"]
    index["parquet"][name]["rows_sha256"] = "0" * 64
    (packed / "records.json").write_text(json.dumps(index))
    with pytest.raises(DamagedRecordsError, match="do not have their recorded hash"):
        read_records(packed, check=True)


def test_packed_records_and_runs_in_one_folder_are_both_read(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "more" / "b")
    pack_folder(tmp_path / "more", tmp_path / "runs" / "packed")
    with unpacked([tmp_path / "runs"]) as places:
        assert places[0] == tmp_path / "runs"
    runs = load_runs(tmp_path / "runs")
    assert sorted(runs.runs.index) == ["a", "b"]
    assert runs.runs.at["b", "folder"] == str(tmp_path / "runs" / "packed" / "b")


def test_what_is_shared_and_the_difference_make_the_object_again() -> None:
    objects = [
        {"a": 1, "b": {"c": 1, "d": {}}, "e": [1]},
        {"a": 1.0, "b": {"c": 1, "d": {"x": None}}, "e": [1]},
        {"a": 1, "b": {"c": 1, "d": {}}, "e": [1], "f": {}},
    ]
    common = shared(objects)
    assert common == {"b": {"c": 1, "d": {}}, "e": [1]}
    assert [repr(merged(common, difference(one, common)).get("a")) for one in objects] == ["1", "1.0", "1"]
    assert [merged(common, difference(one, common)) for one in objects] == objects


def test_the_committed_records_are_items_of_two_files_and_a_page_below_24_mb() -> None:
    assert ITEMS
    for item in ITEMS:
        assert {path.name for path in item.iterdir()} == {"records.json", "records.parquet", README}
    assert {path.name for path in RECORDS.iterdir()} == {"README.md", *(item.name for item in ITEMS)}
    assert sum(path.stat().st_size for path in RECORDS.rglob("*") if path.is_file()) < 24_000_000


@pytest.mark.parametrize("item", every_item(*SMALL))
def test_committed_rows_have_the_hashes_that_their_runs_recorded(item: Path) -> None:
    found = read_records(item, check=True)
    runs = {name: one for name, one in found.objects.items() if name.endswith("run.json")}
    for name, about in runs.items():
        parts = [one for part, one in found.tables.items() if part.startswith(f"{Path(name).parent}/")]
        assert rows_sha256(pa.concat_tables(parts)) == about["hashes"]["metrics"]
        assert len(about["round_hashes"]) == about["rounds_done"]
        assert about["round_hashes"][-1] == about["hashes"]["weights"]


@pytest.mark.parametrize("item", every_item(*SMALL))
def test_the_page_of_committed_records_is_what_the_code_makes_of_them(item: Path) -> None:
    assert (item / README).read_text() == tables_of(item)


def test_the_command_packs_checks_and_unpacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "a")
    packed, again = str(tmp_path / "packed"), tmp_path / "again"
    assert main([str(tmp_path / "runs"), "--out", packed]) == 0
    shutil.rmtree(tmp_path / "runs")
    assert main(["--check", packed]) == 0
    assert main(["--unpack", packed, "--out", str(again)]) == 0
    assert (again / "a" / "run.json").is_file()
    assert "## All runs" in (tmp_path / "packed" / README).read_text()
    assert main(["--check", str(again)]) == 2
    assert "there is no records.json" in capsys.readouterr().err


def test_a_report_on_packed_records_has_the_summary_of_the_runs_and_names_the_packed_folder(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "runs" / "a")
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    for name in ("runs", "packed"):
        assert report([str(tmp_path / name), "--out", str(tmp_path / "of" / name)]) == 0
    there = [(tmp_path / "of" / name / "summary.csv").read_bytes() for name in ("runs", "packed")]
    assert there[0] == there[1]
    page = (tmp_path / "of" / "packed" / "report.html").read_text()
    assert str(tmp_path / "packed" / "a") in page
    assert "raffed-records-" not in page
