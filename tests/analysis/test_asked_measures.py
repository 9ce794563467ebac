"""What a run was asked to measure besides accuracy stands in the summary, and nowhere if no run was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import raffed
from analysis.metrics.summary import cells, summary
from analysis.runs.load import read_runs
from raffed.results.metrics import CALIBRATION, SPREAD, WORST_DECILE
from raffed.results.writer import read_metrics

COLUMNS = {
    "calibration": CALIBRATION,
    **{f"worst_decile_{of}": one for of, one in WORST_DECILE.items()},
    **{f"spread_{of}": one for of, one in SPREAD.items()},
}
TITLES = (
    "calibration error %",
    "worst tenth of the last participants, personal %",
    "spread over clients, global %",
)


def runs_in(folder: Path, asked: str) -> list[Path]:
    """Two runs of FedAvg, which differ in their seeds."""
    for seed in range(2):
        config = raffed.RunConfig(
            data=raffed.Data(split="iid:4", local_test=0.2),
            model=raffed.Model("mlp", {"hidden": [8]}),
            federation=raffed.Federation(rounds=2, measures=asked),
            runtime=raffed.Runtime(execution="serial"),
            seed=seed,
        )
        raffed.run(config, folder / f"seed-{seed}")
    return [folder / f"seed-{seed}" for seed in range(2)]


def test_the_summary_has_the_means_of_what_was_asked_for(tmp_path: Path) -> None:
    places = runs_in(tmp_path, "calibration,fairness")
    [row] = summary(read_runs([tmp_path])).to_dict("records")
    for column, metric in COLUMNS.items():
        values = []
        for place in places:
            rows = read_metrics(place).to_pandas()
            found = rows[(rows["metric"] == metric.name) & (rows["model"] == metric.model)]
            [value] = found["value"]
            values.append(value)
        assert row[column] == pytest.approx(sum(values) / 2)
        assert row[f"{column}_seeds"] == 2
    titles, [line] = cells(summary(read_runs([tmp_path])))
    assert set(TITLES) <= set(titles)
    assert line[titles.index(TITLES[0])] == f"{100 * row['calibration']:.2f}"


def test_it_has_no_such_column_if_no_run_was_asked(tmp_path: Path) -> None:
    runs_in(tmp_path, "")
    titles, _ = cells(summary(read_runs([tmp_path])))
    assert not set(TITLES) & set(titles)
