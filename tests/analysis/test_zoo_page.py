"""The page on a tuned table says what the numbers of its runs say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from raffed.analysis.reproduction.item_runs import load_item, run_folders
from raffed.analysis.runs.load import read_runs
from raffed.reproductions.pages.zoo.page import item_page
from raffed.reproductions.pages.zoo.rows import against, seen, trial_rounds

from tests.analysis.conftest import written_item

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
