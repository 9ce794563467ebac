"""What the driver of many actors receives, adds and holds in a round: simulated nodes, no Ray.

    python -m benchmarks.driver_load [--out FILE.json] [--history FILE]

Stub actors send uploads of 60,000, 1.6 and 11 million weights (int64 sums, as a real actor sends them,
pickled as Ray pickles them). Actors and nodes are simulated in this process: an upload is read and added by
the code that driver and nodes execute, and nodes are taken to work at the same time. Of many equal uploads
32 are timed, and the rest is that time's multiple. "at the driver" means that every actor's upload goes
there. "by node" means that those of another node are added there first
(raffed/runtime/ray/client_actor.py). The driver's own node is one of the nodes.

Columns: CPU seconds in which a round's uploads become one sum; bytes into and out of the driver's node in a
round (one broadcast goes to each other node); seconds these bytes take at 10 Gbit/s, computed; and what the
driver's node holds at most if all uploads arrive before the first is added, in MiB.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.history import Row, add
from raffed.core.aggregation.uploads import PartialSum, UploadAccumulator

WEIGHTS = (60_000, 1_600_000, 11_000_000)
PLACES = ((2, 1), (8, 2), (32, 4), (128, 8), (512, 16), (1024, 32))  # actors and nodes
TIMED = 32  # uploads that are really added
LINE_BYTES = 1.25e9  # a second, at 10 Gbit/s
ORDER_BYTES = 1000  # of what an actor is told beside the weights
REPORT_BYTES = 300  # of what it reports beside its sum


class Upload:
    """An upload as it lies in the object store of a node: the pickled message and its buffer beside it."""

    def __init__(self, weights: int) -> None:
        self._buffers: list[pickle.PickleBuffer] = []
        partial = PartialSum(w=np.arange(weights, dtype=np.int64))
        self._text = pickle.dumps(partial, protocol=5, buffer_callback=self._buffers.append)

    def read(self) -> PartialSum:
        found: PartialSum = pickle.loads(self._text, buffers=self._buffers)
        return found


def seconds_to_add(upload: Upload, count: int) -> float:
    """Return the CPU seconds in which this many uploads are read and added."""
    began, accumulator, timed = time.process_time(), UploadAccumulator(), min(count, TIMED)
    for _ in range(timed):
        accumulator.merge(upload.read())
    accumulator.export()
    return (time.process_time() - began) * count / timed


def lines(weights: int, actors: int, nodes: int) -> Iterator[Row]:
    """Return the lines of actors on nodes that are equally full: sums at the driver, and by node."""
    upload, each = Upload(weights), 8 * weights + REPORT_BYTES
    on_node = -(-actors // nodes)
    out = (nodes - 1) * 4 * weights + (actors - on_node) * ORDER_BYTES
    at_driver = seconds_to_add(upload, actors)
    by_node = seconds_to_add(upload, on_node) + seconds_to_add(upload, max(nodes - 1, 1))
    ways = (
        ("at the driver", at_driver, actors - on_node, actors),
        ("by node", by_node, nodes - 1, on_node + nodes - 1),
    )
    for sums, took, arriving, held in ways:
        yield {
            "weights": weights,
            "actors": actors,
            "nodes": nodes,
            "sums": sums,
            "add_s": took,
            "in_mb": arriving * each / 1e6,
            "out_mb": out / 1e6,
            "line_s": (arriving * each + out) / LINE_BYTES,
            "held_mib": held * each / 2**20,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--history", type=Path, help="file of JSON lines to which the lines of most actors are added"
    )
    options = parser.parse_args()
    found = [row for weights in WEIGHTS for place in PLACES for row in lines(weights, *place)]
    table = Table(*found[0])
    for row in found:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=110).print(table)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=2) + "\n")
    if options.history:
        add(options.history, "driver", [row for row in found if row["actors"] == PLACES[-1][0]])


if __name__ == "__main__":
    main()
