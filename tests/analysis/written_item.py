"""A paper's table as `raffed reproduce` leaves it: an item.json that says only what a test is about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raffed.analysis.reproduction.item_runs import Reproduction, load_item

PLAIN: dict[str, Any] = {
    "schema": 1,
    "paper": "own",
    "name": "n",
    "title": "t",
    "measure": "accuracy_last",
    "scale": "full",
    "unit": "%",
    "margin": 1.0,
    "baseline": "FedAvg",
    "note": "",
    "averages": [],
    "left_out": [],
}


def written_item(folder: Path, cells: Sequence[dict[str, Any]], **about: Any) -> Reproduction:
    """Write the table into a folder, and read it from there.

    Args:
        folder: It is made if it is not there.
        cells: The cells of the table, with the names of their runs.
        about: What is said of the table where it is not PLAIN.
    """
    folder.mkdir(exist_ok=True)
    (folder / "item.json").write_text(json.dumps({**PLAIN, "cells": list(cells), **about}), encoding="utf-8")
    return load_item(folder / "item.json")
