"""How long `raffed report` takes on many runs.  python -m benchmarks.report_tree FOLDER [--runs 1000]
[--parts 1]

Writes the tree if it is not there: runs of 150 rounds, 20 of 100 clients a round, 20 methods on 5 data sets,
as a finished run leaves them (one part) or a killed one (a part every ten rounds).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raffed.results.metric import Row
from raffed.results.rows import SCHEMA, SCHEMA_VERSION
from raffed.results.runfile import write_json
from tests.forging import FEWEST, sha256

MODELS = ("global", "local", "personal")
ROUNDS, CLIENTS, EACH, CLASSES = 150, 100, 20, 10
DATASETS = ("fashion-mnist", "cifar10", "cifar100", "svhn", "femnist")
METHODS = (
    "fedavg",
    "fedprox",
    "fedrs",
    "fedmr",
    "map",
    "scaffold",
    "scars",
    "scamap",
    "fedphp",
    "moon",
    "feddyn",
    "feddc",
    "fednova",
    "fedproc",
    "ditto",
    "dittors",
    "fedrep",
    "fedrod",
    "apfl",
    "gldp",
)


def rows_of(rng: np.random.Generator, level: float) -> list[Row]:
    """Every row of a run, as raffed/results/metric.py says."""
    rows = []
    for number in range(1, ROUNDS + 1):
        score = level * (1 - np.exp(-number / 20)) + rng.normal(0, 0.01)
        sent = {"bytes_up": 5_000_000, "bytes_down": 5_000_000}
        rows.append(Row(number, "global", "train", "loss", 1 / number, n=12_000, seconds=1.0, **sent))
        own = np.clip(score + rng.normal(0, 0.05, EACH), 0, 1)
        for client, value in zip(rng.permutation(CLIENTS)[:EACH], own, strict=True):
            rows.append(
                Row(
                    number,
                    "local",
                    "train",
                    "loss",
                    1.0,
                    client=int(client),
                    n=600,
                    bytes_up=250_000,
                    seconds=0.1,
                )
            )
            for model in MODELS:
                rows.append(
                    Row(number, model, "local_test", "accuracy", float(value), client=int(client), n=120)
                )
        rows += [Row(number, model, "local_test", "accuracy", float(own.mean()), n=EACH) for model in MODELS]
        rows += [
            Row(number, "global", "test", "accuracy", score, n=10_000),
            Row(number, "global", "test", "loss", 1.0, n=10_000),
        ]
        classes = np.clip(score + rng.normal(0, 0.1, CLASSES), 0, 1)
        rows += [
            Row(number, "global", "test", "accuracy", float(v), class_=c, n=1_000)
            for c, v in enumerate(classes)
        ]
    return rows


def table_of(rows: list[Row]) -> dict[str, list[object]]:
    """Column → values."""
    columns = zip(Row._fields, zip(*rows, strict=True), strict=True)
    return {name.rstrip("_"): list(values) for name, values in columns}


def write_tree(folder: Path, runs: int, parts: int) -> None:
    """`runs` runs; the rows are drawn for one run and shifted for the others, which costs reading the
    same.
    """
    rng = np.random.default_rng(0)
    columns = table_of(rows_of(rng, 0.8))
    value = np.array(columns["value"])
    word = pa.dictionary(pa.int32(), pa.string())
    plain = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    for index in range(runs):
        method, rest = METHODS[index % len(METHODS)], index // len(METHODS)
        dataset, seed = DATASETS[rest % len(DATASETS)], rest // len(DATASETS)
        about = {"run_id": f"r{index}", "method": method, "dataset": dataset, "partition": "incomplete:100"}
        made = dict(plain) | {name: pa.array([text] * len(value), word) for name, text in about.items()}
        made["seed"] = pa.array(np.full(len(value), seed), pa.int64())
        made["value"] = pa.array(np.clip(value + rng.normal(0, 0.01), 0, None))
        table = pa.table({field.name: made[field.name] for field in SCHEMA}, schema=SCHEMA)
        run = folder / dataset / f"{method}-{seed}"
        (run / "metrics").mkdir(parents=True)
        for part in range(parts):
            first, last = part * ROUNDS // parts + 1, (part + 1) * ROUNDS // parts
            rounds = np.array(columns["round"])
            piece = table.filter(pa.array((rounds >= first) & (rounds <= last)))
            piece = piece.replace_schema_metadata({b"raffed.schema": str(SCHEMA_VERSION).encode()})
            pq.write_table(
                piece, run / "metrics" / f"part-{first:06d}-{last:06d}.parquet", compression="zstd"
            )
        files = {f"metrics/{path.name}": sha256(path) for path in (run / "metrics").iterdir()}
        contents = _about(method, dataset, seed, about["run_id"])
        write_json(run / "run.json", {**contents, "files": files})


def _about(method: str, dataset: str, seed: int, run_id: str) -> dict[str, object]:
    import dataclasses

    from raffed import Data, Federation, RunConfig

    config = RunConfig(
        method, {}, Data(dataset, "incomplete:100"), federation=Federation(ROUNDS, 0.2), seed=seed
    )
    return {
        **FEWEST,
        "run_id": run_id,
        "state": "finished",
        "config": dataclasses.asdict(config),
        "rounds_done": ROUNDS,
        "hashes": {"weights": "0" * 64},
        "segments": [{**FEWEST["segments"][0], "to": ROUNDS}],
        "seconds": 150.0,
        "partition_sha256": str(seed) * 64,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--parts", type=int, default=1)
    asked = parser.parse_args()
    if not asked.folder.exists():
        write_tree(asked.folder, asked.runs, asked.parts)
    from raffed.analysis.loading import load_runs
    from raffed.analysis.report import write_loaded

    began = time.perf_counter()
    runs = load_runs([asked.folder])
    loaded = time.perf_counter()
    path = write_loaded(runs, asked.folder.parent / f"{asked.folder.name}-report")
    ended = time.perf_counter()
    size = path.stat().st_size / 1e6
    print(f"{len(runs.runs)} runs: load {loaded - began:.1f} s, report {ended - loaded:.1f} s, {size:.1f} MB")
    print(f"{time.process_time():.1f} s of a core in all, imports included")


if __name__ == "__main__":
    main()
