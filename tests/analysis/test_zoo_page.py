"""The page on a tuned table says what the numbers of its runs say."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from raffed.analysis.reproduction.item_runs import load_item, run_folders
from raffed.analysis.runs.load import read_runs
from raffed.reproductions.pages.pack_records import main as pack
from raffed.reproductions.pages.packed.files import read_records
from raffed.reproductions.pages.zoo.cells import command
from raffed.reproductions.pages.zoo.page import item_page, where_it_holds
from raffed.reproductions.pages.zoo.rows import against, seen, trial_rounds

from raffed.results.metric import Row
from raffed.results.writer import MetricsWriter
from raffed.tables.catalogue import chosen, find_item
from tests.analysis.written_item import written_item

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
    alone = found["Noisy"].p_found
    assert found["Noisy"].p == pytest.approx(alone), "the largest p-value is multiplied by 1 in both"
    assert found["Better"].p == pytest.approx(2 * found["Better"].p_found)


def test_a_row_that_diverged_with_some_seeds_has_no_verdict_and_is_not_the_best(table: Path) -> None:
    """The seeds that are left may be its good ones: it would have the highest mean, and a gain."""
    item = load_item(table)
    lost = [f"Better, P10C2: diverged: the loss of round {number} is nan" for number in (3, 4)]
    cells = [
        {**cell, "runs": cell["runs"][: 3 if cell["row"] == "Better" else 5]} for cell in item.about["cells"]
    ]
    item = item._replace(about={**item.about, "cells": cells, "left_out": lost})
    page = item_page(item, read_runs(run_folders(item)))
    assert "- Gain over FedAvg: none." in page
    assert "- Have no verdict, because some of their final runs diverged: Better on P10C2." in page
    assert "Better has the highest mean" not in page
    assert "Not compared with it, because seeds are missing: Better." in page
    (row,) = (line.split(" | ") for line in page.splitlines() if line.startswith("| [Better](#"))
    assert (row[2], row[6]) == ("3 of 5, 2 diverged", "diverged")
    assert "### Final runs that diverged\n\n- Better, P10C2: diverged: the loss of round 3 is nan." in page


@pytest.mark.parametrize("rows", [["Better"], list(ROWS)])
def test_a_best_row_is_named_although_the_row_with_most_seeds_has_diverged(
    table: Path, rows: list[str]
) -> None:
    item = load_item(table)
    lost = [f"{row}, P10C2: diverged: the loss of round 3 is nan" for row in rows]
    cells = [
        {**cell, "runs": cell["runs"][: 4 if cell["row"] == "Better" else 3]} for cell in item.about["cells"]
    ]
    item = item._replace(about={**item.about, "cells": cells, "left_out": lost})
    best = "Noisy" if rows == ["Better"] else "Better"  # it has two good seeds of three
    assert f", {best} has the highest mean, " in item_page(item, read_runs(run_folders(item)))


def test_a_difference_without_spread_is_not_said_to_have_too_few_seeds() -> None:
    scores = {"FedAvg": dict.fromkeys(range(3), 0.5), "Other": dict.fromkeys(range(3), 0.75)}
    assert against(scores, "FedAvg")["Other"].verdict == "not separated"
    few = {row: {0: one[0], 1: one[1]} for row, one in scores.items()}
    assert against(few, "FedAvg")["Other"].verdict == "too few seeds"


def test_the_command_of_a_cell_is_one_that_chooses_this_cell_alone(table: Path) -> None:
    """Names have spaces, and Per-FedAvg's method is called perfedavg."""
    words = shlex.split(command(load_item(table), "Per-FedAvg", "Dirichlet 0.1"))
    only = [word for flag, word in itertools.pairwise(words) if flag == "--only"]
    (cell,) = chosen(find_item("zoo/fashion-mnist"), only)
    assert (cell.row, cell.column) == ("Per-FedAvg", "Dirichlet 0.1")


def test_a_verdict_is_only_on_a_split_if_the_row_was_run_on_the_others() -> None:
    names = ["A", "B", "C"]
    assert where_it_holds(["A", "B", "C"], names, names) == "on every split"
    assert where_it_holds(["A"], names, names) == "on A only"
    assert where_it_holds(["A", "C"], names, names) == "on A and C only"
    assert where_it_holds(["A"], ["A", "B"], names) == "on A (not run on C)"
    assert where_it_holds(["A"], ["A"], ["A"]) == "on A"


@pytest.mark.more
def test_records_have_one_row_a_round_of_trials_and_runs_as_far_as_they_came(
    table: Path, tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    """A trial that diverged in round 2 has two rows. Trials that were unpacked are packed again."""
    about = json.loads(table.read_text())
    about["search"]["select"] = "global"
    table.write_text(json.dumps(about))
    lost = write_run("lr=9-0-25", [], state="failed")
    writer = MetricsWriter(lost, "t", "fedavg", "digits", "p10c2", 0)
    for number, score in ((1, 0.3), (2, 0.2)):
        for client in (None, 0):
            writer.add([Row(number, "global", "val", "accuracy", score, client=client, n=100)])
    writer.flush()
    write_run("FedAvg-6", [0.5], state="stopped")
    beside = tmp_path.parent / f"{tmp_path.name}-packed"
    for number, source in enumerate((tmp_path, beside / "unpacked0")):
        packed = beside / f"packed{number}"
        assert pack([str(source), "--out", str(packed), "--results"]) == 0
        files = read_records(packed).objects
        assert "lr=9-0-25/run.json" not in files
        assert {"FedAvg-1/run.json", "FedAvg-6/run.json"} <= files.keys()
        assert pack(["--unpack", str(packed), "--out", str(beside / f"unpacked{number}")]) == 0
        trials = pq.read_table(beside / f"unpacked{number}" / "item" / "trials.parquet")
        assert trials.to_pylist() == [
            {"run": "lr=9-0-25", "round": 1, "value": 0.3},
            {"run": "lr=9-0-25", "round": 2, "value": 0.2},
        ]
