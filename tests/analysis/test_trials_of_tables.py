"""Trials that chose the setting of a row of a table are results nowhere: not on the page, not in Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import raffed
from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from tests.analysis.written_item import written_item

CONFIG = RunConfig(
    data=Data(split="iid:2", samples=200),
    model=Model("mlp"),
    local=Local(epochs=1),
    federation=Federation(rounds=1),
    runtime=Runtime(execution="serial"),
)


def test_python_gives_the_rows_that_the_page_has(tmp_path: Path) -> None:
    """The copy has runs of the same names, which are then told apart by their paths."""
    one = tmp_path / "one"
    for name, rate in (("final", 0.1), ("trial", 0.2)):
        raffed.run(CONFIG.changed({"local.lr": rate}), out=one / "runs" / name)
    trials = [{"setting": "lr=0.2", "state": "finished", "score": 0.9, "run": "../runs/trial"}]
    rows = [{"row": "FedAvg", "column": "iid", "chosen": "lr=0.2", "trials": trials}]
    cell = {"row": "FedAvg", "column": "iid", "printed": {}, "runs": ["../runs/final"]}
    written_item(one / "item", [cell], search={"last": 10, "rows": rows})
    shutil.copytree(one, tmp_path / "two")
    for places in ([one], [one, tmp_path / "two"]):
        found = raffed.report(places, tmp_path / "report", progress=False)
        assert len(found.rows) == len(found.table) == 1
        lines = (tmp_path / "report" / "summary.md").read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if line.startswith("| FedAvg")] == lines[2:3]
        assert lines[3:] == []
