"""Small runs with made-up but plausible numbers, written the way a run writes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

# Where tests/ is on the path, this very folder would pass for a namespace package called `analysis`.
sys.path.insert(0, str(Path(__file__).parents[2]))

from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.item_runs import Reproduction, load_item, run_folders
from raffed.analysis.runs.load import Runs

from raffed.results.metric import Row
from raffed.results.runfile import sealed, write_json
from raffed.results.writer import MetricsWriter

WriteTable = Callable[..., tuple[Reproduction, Runs]]
SERVER_BYTES = (2_000_000, 4_000_000)
ONE, OTHER = "a1b2c3d4" * 8, "c3d4e5f6" * 8  # hashes of two partitions
STARTED, VERSIONS = "2026-11-20T10:00:00+00:00", {"torch": "2.11.0", "ray": "2.54.0"}


PLAIN: dict[str, Any] = {  # what an item.json says where a test is not about it
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
    """Write a paper's table as `raffed reproduce` leaves it, and read it.

    Args:
        folder: It is made if it is not there.
        cells: The cells of the table, with the names of their runs.
        about: What is said of the table where it is not PLAIN.
    """
    folder.mkdir(exist_ok=True)
    (folder / "item.json").write_text(json.dumps({**PLAIN, "cells": list(cells), **about}), encoding="utf-8")
    return load_item(folder / "item.json")


def change(folder: Path, where: str, value: object) -> None:
    """Another value in a run.json, at `where` (a.b.c)."""
    file = json.loads((folder / "run.json").read_text())
    *way, last = where.split(".")
    part = file
    for name in way:
        part = part.setdefault(name, {})
    part[last] = value
    (folder / "run.json").write_text(json.dumps(sealed(file)))


def write_rows(
    folder: Path,
    rows: Sequence[Row],
    config: Mapping[str, Any] | None = None,
    split: str = "p10c2",
    **about: Any,
) -> None:
    """Write a run of these rows. `about` is what its run.json says beside the configuration."""
    asked = {"method": "fedavg", "data": {"dataset": "digits", "split": split}, "seed": 0, **(config or {})}
    writer = MetricsWriter(folder, folder.name, asked["method"], "digits", split, asked["seed"])
    writer.add(sorted(rows, key=lambda row: row.round))
    writer.flush()
    write_json(folder / "run.json", {"run_id": folder.name, "state": "finished", "config": asked, **about})


def rows_of_round(
    round: int, accuracy: float, personal: float | None, classes: int, seconds: float
) -> list[Row]:
    """What a round of two clients writes, by the conventions of raffed/results/metric.py (as far as
    analysis reads).
    """
    up, down = SERVER_BYTES
    sent = {"bytes_up": up, "bytes_down": down, "seconds": seconds}
    rows = [
        Row(round, "global", "train", "loss", 1 / round, n=100, **sent),
        Row(round, "global", "test", "accuracy", accuracy, n=1000),
        Row(round, "global", "test", "loss", 1 - accuracy, n=1000),
    ]
    for client in (0, 1):
        own = {"client": client, "n": 50, "bytes_up": up // 2, "seconds": 0.1}
        rows.append(Row(round, "local", "train", "loss", 2 / round, **own))
    for c in range(classes):
        value = min(1.0, accuracy * (0.6 + 0.8 * c / classes))
        rows.append(Row(round, "global", "test", "accuracy", value, class_=c, n=100))
    if personal is not None:
        for client, shift in ((0, -0.02), (1, 0.02)):
            value = personal + shift
            rows.append(Row(round, "personal", "local_test", "accuracy", value, client=client, n=40))
        rows.append(Row(round, "personal", "local_test", "accuracy", personal, n=2))
    return rows


class WriteRun:
    """Writes runs into a folder; write_run(name, accuracies, …) returns that of a run with one round for each
    accuracy.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, **more: Any) -> Runs:
        return load_runs(self.folder, **more)

    def __call__(
        self,
        name: str,
        accuracies: list[float],
        *,
        personal: list[float] | None = None,
        method: str = "fedavg",
        seed: int = 0,
        split: str = "p10c2",
        dataset: str = "digits",
        planned: int | None = None,
        args: dict[str, Any] | None = None,
        seconds: float = 0.5,
        classes: int = 3,
        **more: Any,
    ) -> Path:
        folder, files, done = self.folder / name, dict[str, str](), len(accuracies)
        writer = MetricsWriter(folder, name, method, dataset, split, seed, files.update)
        for round, accuracy in enumerate(accuracies, start=1):
            own = personal[round - 1] if personal else None
            writer.add(rows_of_round(round, accuracy, own, classes, seconds))
            if round % 5 == 0:
                writer.flush()
        writer.flush()
        config = {
            "method": method,
            "method_args": args or {},
            "seed": seed,
            "data": {"dataset": dataset, "split": split},
            "model": {"name": "mlp", "args": {}},
            "local": {"lr": 0.05, "momentum": 0.9, "epochs": 1},
            "federation": {"rounds": planned or done, "participation": 1.0},
            "runtime": {"actors": seed},
        }
        begun = {"started": more.get("started", STARTED), "versions": more.get("versions", VERSIONS)}
        about = {"run_id": name, "state": "finished", "config": config, "rounds_done": done, "files": files}
        about |= {"hashes": {"weights": "ab" * 32, "metrics": "cd" * 32}, "partition_sha256": "ef" * 32}
        about |= {"hardware": {"cpus": 2}, "execution": "ray", "commit": "0123abc", "error": None}
        about |= {"schema": 2, "method_revision": 1, "transform": "fedmr", "seconds": 12.3, **begun}
        about |= {"inputs": {"shape": [1, 8, 8], "dtype": "float32"}}
        about["segments"] = [{"from": 1, "to": done, "hardware": {"cpus": 2}, "said": [], **begun}]
        write_json(folder / "run.json", about | more)
        return folder


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes runs into tmp_path."""
    return WriteRun(tmp_path)


@pytest.fixture
def write_table(tmp_path: Path, write_run: WriteRun) -> WriteTable:
    """Writes a table of the column IID: row → printed number or None, accuracy with each seed. Loads it."""

    def write(
        rows: Mapping[str, tuple[float | None, Sequence[float]]], **about: Any
    ) -> tuple[Reproduction, Runs]:
        cells = []
        for row, (printed, scores) in rows.items():
            names = [
                write_run(f"{row}-{seed}", [score], method=row.lower(), seed=seed).name
                for seed, score in enumerate(scores)
            ]
            told = {} if printed is None else {"value": printed}
            cells.append({"row": row, "column": "IID", "printed": told, "runs": names})
        item = written_item(tmp_path, cells, **about)
        return item, load_runs(run_folders(item))

    return write


@pytest.fixture(scope="session")
def some_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one method under two seeds, personal models measured. To be read only."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        WriteRun(folder)(f"s{seed}", [0.3, 0.5], personal=[0.4, 0.6], seed=seed)
    return folder
