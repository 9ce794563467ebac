"""Bytes and seconds of a round on machines of slow lines: 1, 2 and 3 nodes of Ray in network namespaces.

    RAFFED_DATA=DIR python -m benchmarks.nodes [--rounds 18] [--only W1] [--nodes 1 2 3]

As root. Every node is a network namespace on a line of 100 Mbit/s and 20 ms one way (tests/cluster/netem.py),
and the driver is on the first one. W1 runs with two actors a node. The other form has W1's data and network,
twelve clients that all take part for a fifth of an epoch, and an actor for each of them. What each line
carries from the end of the second round to that of the last but one is counted, less what it carries in as
many seconds when nothing runs. The next round begins before the end of one is told, so bytes are uncertain by
one broadcast, divided by the rounds. Seconds are medians over rounds. Rounds are not scored.

Predicted bytes: each node but the driver's receives the model once, 4 bytes a weight, and sends one sum, 8
bytes a weight (int64). A frame of 1,514 bytes holds 1,448 of them, and every second frame is acknowledged by
one of 66. Predicted seconds: those on one node (all nodes share two cores here), the bytes in and out of the
driver's node in turn at the line's rate, and the wait for questions and answers, which the round on two nodes
shows. The record is benchmarks/nodes.json, and docs/cluster.md has its table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.cluster.netem import DELAY, RATE, Host, Network
from tests.cluster.nodes import ROOT, Cluster

RECORD = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs" / "cluster.md"
WEIGHTS = 669_706  # of W1's network
FRAMES, ACKS = 1514 / 1448, 66 / (2 * 1448)
CORES, STORE, MANY = 2, 2**29, 64
WARM, IDLE = 2, 10.0  # rounds that are not counted; seconds without a run
FORM = """
method = "{method}"
[data]
dataset = "{dataset}"
split = "{split}"
transform = "plain"
local_test = 0.0
[model]
name = "mlpnet"
args = {{ head_bias = true }}
[local]
lr = 0.03
momentum = 0.9
weight_decay = 1e-5
batch_size = 64
epochs = {epochs}
[federation]
rounds = {rounds}
participation = {participation}
eval_every = 10000
[runtime]
{placement}
checkpoint_every = {checkpoint}
"""
FASHION = {"method": "fedavg", "dataset": "fashion-mnist", "checkpoint": 10000}
W1 = {**FASHION, "split": "shards:100:2", "epochs": 1.0, "participation": 0.2}
ALONE = {**FASHION, "split": "shards:12:2", "epochs": 0.2, "participation": 1.0}


def forms(nodes: int, rounds: int) -> dict[str, str]:
    """Return the name of each form → its configuration, as TOML."""
    return {
        "W1": FORM.format(**W1, rounds=rounds, placement=f"actors = {CORES * nodes}"),
        "an actor a client": FORM.format(**ALONE, rounds=rounds, placement="clients_per_actor = 1"),
    }


def bytes_now(hosts: Sequence[Host]) -> NDArray[np.float64]:
    """Return the bytes that each line has brought and taken away until now [hosts, 2]."""
    return np.array([host.traffic() for host in hosts], dtype=np.float64)


@contextmanager
def nodes(count: int) -> Iterator[tuple[Network, Cluster]]:
    """Machines with a node of Ray on each."""
    with Network(count) as network, Cluster(cpus=[CORES] * count, hosts=network.hosts, store=STORE) as ray:
        yield network, ray


def started(cluster: Cluster, *words: object) -> subprocess.Popen[str]:
    """Start a command of raffed on the first node; it writes its events."""
    command = [*cluster.prefix, sys.executable, "-m", "raffed", *map(str, words)]
    joined = [*command, "--address", cluster.gcs_address, "--json"]
    return subprocess.Popen(joined, env=cluster.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a command writes until it ends."""
    assert process.stdout is not None
    return map(json.loads, process.stdout)


def measured(network: Network, cluster: Cluster, file: Path, out: Path) -> dict[str, Any]:
    """Return the seconds of a round and each line's bytes in it, of a run of at least four rounds.

    Raises:
        RuntimeError: The run failed.
    """
    times: list[float] = []
    found: list[NDArray[np.float64]] = []
    with started(cluster, "run", file, "--out", out) as process:
        for event in events(process):
            if event["event"] == "round":
                times.append(time.monotonic())
                found.append(bytes_now(network.hosts))
    if process.returncode:
        raise RuntimeError(f"{file}: the run ended with {process.returncode}")
    each = np.diff(found[WARM - 1 : -1], axis=0)
    seconds = float(np.median(np.diff(times[WARM - 1 : -1])))
    before = bytes_now(network.hosts)
    time.sleep(IDLE)
    idle = (bytes_now(network.hosts) - before) * seconds / IDLE
    return {
        "rounds": len(each),
        "seconds": round(seconds, 3),
        "bytes": np.round(each.mean(axis=0) - idle).tolist(),
        "idle": np.round(idle).tolist(),
    }


def predicted(count: int, weights: int = WEIGHTS) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the bytes of a round, in and out, of the driver's line and of the line of any other node."""
    model, total = 4 * weights, 8 * weights
    into, out = model * FRAMES + total * ACKS, total * FRAMES + model * ACKS
    others = count - 1
    return (others * out, others * into), ((into, out) if others else (0.0, 0.0))


def predicted_seconds(count: int, found: dict[int, float]) -> float | None:
    """Return the seconds of a round on so many nodes, from those of one and two; None for these."""
    on_line = sum(predicted(2)[0]) * 8 / RATE
    wait = found[2] - found[1] - on_line
    return found[1] + (count - 1) * on_line + wait if count > 2 else None


def table(record: dict[str, Any]) -> str:
    """Return the table of docs/cluster.md."""
    text = "| | nodes | driver's node, MB in and out | predicted | another node | predicted | s a round | "
    text += "predicted |\n"
    text += "|---|--:|--:|--:|--:|--:|--:|--:|\n"
    for name in dict.fromkeys(row["form"] for row in record["rows"]):
        rows = {row["nodes"]: row for row in record["rows"] if row["form"] == name}
        found = {count: row["seconds"] for count, row in rows.items()}
        for count in (*rows, MANY):
            lines = rows[count]["bytes"] if count in rows else []
            others = (
                [tuple(sum(side) / (count - 1) for side in zip(*lines[1:], strict=True))] if count > 1 else []
            )
            said = [_both(one) for one in [*lines[:1], *(others if lines else [])]]
            should = [_both(one) for one in predicted(count)]
            seconds = predicted_seconds(count, found)
            cells = [name, str(count), said[0] if said else "–", should[0], said[1] if said[1:] else "–"]
            cells += [should[1] if count > 1 else "–", f"{found[count]:.2f}" if count in found else "–"]
            text += f"| {' | '.join([*cells, '–' if seconds is None else f'{seconds:.2f}'])} |\n"
    return text


def _both(pair: Sequence[float]) -> str:
    return ", ".join(f"{abs(one) / 1e6:,.2f}" for one in pair)


def main() -> None:
    """Measure, write the record, and put its table in the place of the old one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--only", action="append")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    record: dict[str, Any] = {"rate": RATE, "delay": DELAY, "rows": [], "load": [os.getloadavg()[0]]}
    with tempfile.TemporaryDirectory() as folder:
        for count in options.nodes:
            with nodes(count) as (network, cluster):
                record["lines"] = network.by
                for number, (name, text) in enumerate(forms(count, options.rounds).items()):
                    if name in (options.only or [name]):
                        file = Path(folder, "exp.toml")
                        file.write_text(text)
                        row = measured(network, cluster, file, Path(folder, f"{count}-{number}"))
                        record["rows"].append({"form": name, "nodes": count, **row})
                        print(json.dumps(record["rows"][-1]), flush=True)
    record["load"].append(os.getloadavg()[0])
    old = table(json.loads(RECORD.read_text())) if RECORD.exists() else ""
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    if not {1, 2} <= set(options.nodes):
        return
    print(new := table(record))
    if options.out == RECORD and old:
        PAGE.write_text(PAGE.read_text().replace(old, new))


if __name__ == "__main__":
    main()
