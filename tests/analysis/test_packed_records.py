"""Packed records give back what they keep; the committed ones have the hashes that were recorded. The page
on a tuned table says what the numbers of its runs say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raffed.analysis import load_runs
from raffed.analysis.__main__ import main as report
from raffed.analysis.reproduction.item_runs import load_item, run_folders
from raffed.analysis.runs.files import LARGEST
from raffed.analysis.runs.load import read_runs
from raffed.reproductions.pages.pack_records import README, main, tables_of
from raffed.reproductions.pages.packed.files import (
    pack_folder,
    read_file,
    read_records,
    unpack_folder,
    write_records,
)
from raffed.reproductions.pages.zoo.page import item_page
from raffed.reproductions.pages.zoo.rows import against, seen, trial_rounds

from raffed.results.metric import Row
from raffed.results.runfile import RECORDS_FILE, write_json
from raffed.results.storage import DamagedRecordsError, packed_below
from raffed.results.writer import rows_sha256, table_of, write_part
from tests.analysis.conftest import written_item
from tests.forging import FEWEST, sha256

RECORDS = Path(__file__).parents[2] / "reproductions" / "records"
ITEMS = packed_below(RECORDS)
SMALL = ("fedmr-causes", "fedmr-tuning", "gldp-causes", "leakage")
PART = "part-000001-000002.parquet"
HASHES = ["aa" * 32, "ff" * 32]


def every_item(*small: str) -> list[object]:
    """The committed records, of which CI reads the large ones as well."""
    marks = {True: (), False: (pytest.mark.more,)}
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


def make_run(folder: Path) -> pa.Table:
    """Write a run of two rounds, and return the rows that records keep of it."""
    said = {"run_id": folder.name, "method": "map", "dataset": "digits", "partition": "p10c2", "seed": 0}
    table = table_of(rows(), said)
    part = folder / "metrics" / PART
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
        "files": {f"metrics/{PART}": sha256(part), "final.safetensors": "1" * 64},
    }
    write_json(folder / "run.json", about)
    return table_of([row for row in rows() if row.client is None or row.metric == "accuracy"], said)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The packed records of one run."""
    make_run(tmp_path / "runs" / "a")
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    return tmp_path / "packed"


def test_what_run_json_says_comes_back_and_says_which_hash_the_kept_rows_have(tmp_path: Path) -> None:
    given = {name: make_run(tmp_path / "runs" / name) for name in ("a", "b")}
    pack_folder(tmp_path / "runs", tmp_path / "packed")
    assert not load_runs(tmp_path / "packed").unreadable
    unpack_folder(tmp_path / "packed", tmp_path / "again")
    for name, table in given.items():
        run = tmp_path / "again" / name
        again, before = (
            json.loads((folder / "run.json").read_bytes()) for folder in (run, tmp_path / "runs" / name)
        )
        new = {
            "files": {f"metrics/{PART}": sha256(run / "metrics" / PART)},
            "hashes": {**before["hashes"], "kept": rows_sha256(table)},
            "contents_sha256": ANY,
        }
        assert again == {**before, **new}
        found = pq.read_table(run / "metrics" / PART)
        assert rows_sha256(found, ignore=("seconds",)) == rows_sha256(table, ignore=("seconds",))


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another schema": lambda index: index.update(schema=1),
    "a name that leads out": lambda index: index["files"].update({"../outside.json": {}}),
    "an index without end": lambda index: index["texts"].update(long=" " * LARGEST),
}


@pytest.mark.parametrize("damage", ["cut", "a byte changed", *DAMAGES])
def test_damaged_records_are_refused_in_one_line_that_names_the_folder(packed: Path, damage: str) -> None:
    file = packed / RECORDS_FILE
    raw, (index, table) = file.read_bytes(), read_file(file)
    if damage == "cut":
        file.write_bytes(raw[:-1])
    elif damage == "a byte changed":
        column = pq.ParquetFile(file).metadata.row_group(0).column(0)
        end = column.dictionary_page_offset + column.total_compressed_size
        file.write_bytes(raw[: end - 1] + bytes([raw[end - 1] ^ 1]) + raw[end:])
    else:
        DAMAGES[damage](index)
        write_records(index, table, file)
    with pytest.raises(DamagedRecordsError, match="packed") as refused:
        unpack_folder(packed, packed / "again" / "below")
    assert "\n" not in str(refused.value)
    assert not (packed / "again" / "outside.json").exists()


def test_the_committed_records_are_items_of_one_file_and_a_page_below_10_mb_and_20_with_the_zoo() -> None:
    assert ITEMS
    for item in ITEMS:
        assert {path.name for path in item.iterdir()} == {RECORDS_FILE, README}
    assert {path.name for path in RECORDS.iterdir()} == {"README.md", *(item.name for item in ITEMS)}
    sizes = {path: path.stat().st_size for path in RECORDS.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 20_000_000
    assert sum(size for path, size in sizes.items() if not path.parent.name.startswith("zoo")) < 10_000_000


@pytest.mark.parametrize("item", every_item(*SMALL))
def test_committed_rows_and_weights_have_their_recorded_hashes_and_the_page_is_made_of_them(
    item: Path,
) -> None:
    found = read_records(item, check=True)
    runs = {name: one for name, one in found.objects.items() if name.endswith("run.json")}
    for name, about in runs.items():
        parts = [one for part, one in found.tables.items() if part.startswith(f"{Path(name).parent}/")]
        assert rows_sha256(pa.concat_tables(parts)) == about["hashes"]["kept"]
        assert len(about["round_hashes"]) == about["rounds_done"]
        assert about["round_hashes"][-1] == about["hashes"]["weights"]
    assert (item / README).read_text() == tables_of(item)


def test_the_command_packs_checks_and_unpacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "a")
    packed, again = str(tmp_path / "packed"), tmp_path / "again"
    assert main([str(tmp_path / "runs"), "--out", packed]) == 0
    assert main(["--check", packed]) == 0
    assert main(["--unpack", packed, "--out", str(again)]) == 0
    assert (again / "a" / "run.json").is_file()
    assert "## All runs" in (tmp_path / "packed" / README).read_text()
    assert main(["--check", str(again)]) == 2
    assert "there is no records.parquet" in capsys.readouterr().err


def test_a_report_on_packed_records_has_the_summary_of_the_runs_and_names_the_packed_folder(
    packed: Path, tmp_path: Path
) -> None:
    for name in ("runs", "packed"):
        assert report([str(tmp_path / name), "--out", str(tmp_path / "of" / name)]) == 0
    there = [pd.read_csv(tmp_path / "of" / name / "summary.csv") for name in ("runs", "packed")]
    pd.testing.assert_frame_equal(*(one.filter(regex="^(?!seconds_round)") for one in there))
    page = (tmp_path / "of" / "packed" / "report.html").read_text()
    assert str(packed / "a") in page
    assert "raffed-records-" not in page


BASE = {1: 0.50, 2: 0.52, 3: 0.48, 4: 0.51, 5: 0.49}
ROWS = {  # of the last round, by seed
    "FedAvg": BASE,
    "Better": {seed: one + 0.10 + seed / 1000 for seed, one in BASE.items()},
    "Worse": {seed: one - 0.10 - seed / 1000 for seed, one in BASE.items()},
    "Noisy": {seed: one + (0.06 if seed % 2 else -0.06) for seed, one in BASE.items()},
    "Twin": BASE,
}


def _trial(setting: str, seed: int, rounds: int, state: str = "finished") -> dict[str, object]:
    run = f"../{setting}-{seed}-{rounds}"
    return {"setting": setting, "seed": seed, "rounds": rounds, "state": state, "score": None, "run": run}


@pytest.fixture
def table(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    """Five methods with five seeds each, and two settings of which the first went on for more rounds."""
    cells = []
    for row, scores in ROWS.items():
        folders = [
            write_run(f"{row}-{seed}", [score], method=row.lower(), seed=seed)
            for seed, score in scores.items()
        ]
        runs = [f"../{folder.name}" for folder in folders]
        cells.append({"row": row, "column": "P10C2", "printed": {}, "runs": runs})
    cells[2]["measure"] = "accuracy_last"
    trials = [
        *({**_trial("lr=0.1", seed, 25), "run": f"../t{seed}"} for seed in range(2)),
        *(_trial("lr=9", seed, 25, "diverged") for seed in range(2)),
        *(_trial("lr=0.1", seed, 100, ("finished", "stopped")[seed]) for seed in range(2)),
    ]
    item = written_item(
        tmp_path / "item",
        cells,
        paper="zoo",
        name="t",
        title="A table",
        measure="accuracy_mean10",
        unit="accuracy, %",
        note="every method has two settings",
        left_out=["Late, P10C2: not finished"],
        search={
            "last": 10,
            "rows": [{"row": row, "column": "P10C2", "chosen": "lr=0.1", "trials": trials} for row in ROWS],
            "remarks": [{"row": "Better", "what": "its server has 100 images, which no other has"}],
            "excluded": [{"row": "Own", "why": "the server holds no whole model"}],
        },
    )
    return item.folder / "item.json"


def test_the_page_says_what_gains_what_falls_what_is_not_separated_and_what_it_sends(table: Path) -> None:
    """Differences of 10 points that vary by half a point are separated. Those of ±6 points are not."""
    item = load_item(table)
    page = item_page(item, read_runs(run_folders(item)))
    assert "- On P10C2 (5 of 6 rows are run), Better has the highest mean, " in page
    for line in (
        "- Gain over FedAvg: Better on P10C2.",
        "- Fall below FedAvg: Worse on P10C2.",
        "- Are not separated from FedAvg: Noisy on P10C2.",
        "- Have the same numbers as FedAvg: Twin on P10C2.",
        "- Send at least 1.05 times FedAvg's bytes: none.",
        "- Own: the server holds no whole model.",
        "- Better: its server has 100 images, which no other has.",
        "- Worse on P10C2, lr=9, with 2 seeds.",
        "- Late, P10C2: not finished.",
    ):
        assert line in page.splitlines(), line
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| [Better](#")]
    assert len(rows) == 1
    assert rows[0][1] == "60.30 ± 1.91"  # s² = 9.5/4 points², and t(4) = 2.776 times s/√5
    assert rows[0][2] == "5"
    assert rows[0][3] == "+10.30 ± 0.20"  # seed/10 points: s = 0.158, half = 2.776 · 0.158/√5
    (worse,) = (line for line in page.splitlines() if line.startswith("| [Worse](#"))
    assert worse.endswith("| last round |"), "it is read in another way than the others, and the row says so"
    assert "second" not in page
    assert "| baseline |" in page
    item.about["baseline"] = "Another"
    assert "| baseline |" not in item_page(item, read_runs(run_folders(item)))


def test_the_page_states_its_power_the_rounds_of_trials_and_a_second_correction(table: Path) -> None:
    """Of five pairs with s = 1 point, 80 % power needs δ = 1.682 points: δ√5/s = 3.76 is the noncentrality
    at which a t with 4 degrees of freedom exceeds 2.776 with probability 0.8. Holm multiplies the smallest of
    three p-values by 3 and the next by 2; Benjamini and Hochberg by 3 and 3/2.
    """
    item = load_item(table)
    assert trial_rounds(item) == len(ROWS) * (2 * 25 + 2 * 25 + 75), "the last 75 of the run that has ended"
    page = item_page(item, read_runs(run_folders(item)))
    assert f"Trials took {len(ROWS) * 175:,} rounds so far." in page
    found = against({row: ROWS[row] for row in ("FedAvg", "Better", "Worse", "Noisy")}, "FedAvg")
    powers = seen(found)
    spreads = sorted([0.1 * 2.5**0.5, 0.1 * 2.5**0.5, 6.0 * 1.2**0.5])  # points
    assert powers == pytest.approx([1.682 * one for one in spreads], rel=1e-3)
    assert f"5 seeds see a difference of {powers[1]:.1f} points" in page
    lost = against(ROWS, "FedAvg", {"FedAvg": 1})
    assert {row.verdict for row in lost.values()} == {"diverged"}, (
        "its seeds that are left may be its good ones"
    )
    alone = found["Noisy"].p_found
    assert found["Noisy"].p == pytest.approx(alone), "the largest p-value is multiplied by 1 in both"
    assert found["Better"].p == pytest.approx(2 * found["Better"].p_found)
