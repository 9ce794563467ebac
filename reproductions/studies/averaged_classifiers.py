"""What averaging does to classifiers that each know two of three classes: FedMR (TMLR 2023), Fig. 2 and §3.2.

Each of three clients misses one class. Its classifier has two opposite rows of unit length for the classes it
holds, and a zero row for the third. The direction (−√3/2, ½) belongs to client 1's second class: client 1
sees it 30° from that row, and the mean sees it 45° from it (docs/papers/fedmr.md §E4). The numbers are exact,
so nothing is random and every scale is the same.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from raffed.tables.items import Work

from .record import Recorder

HALF = math.sqrt(3) / 2
LOCAL = np.array(
    [
        [(0.5, -HALF), (-0.5, HALF), (0.0, 0.0)],
        [(0.5, HALF), (0.0, 0.0), (-0.5, -HALF)],
        [(0.0, 0.0), (0.0, 1.0), (0.0, -1.0)],
    ]
)  # [clients, classes, 2], as printed
DIRECTION = np.array([-HALF, 0.5])


def angle(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the angle between two vectors, in degrees, from 0 to 180."""
    cosine = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    return math.degrees(math.acos(min(1.0, max(-1.0, cosine))))


def run(work: Work) -> None:
    """Record the rows of every classifier as points, and the angles as values."""
    mean = LOCAL.mean(axis=0)
    classes = range(len(mean))
    with Recorder(work, {"clients": len(LOCAL), "classes": len(mean)}) as record:
        for client, rows in enumerate(LOCAL, start=1):
            record.points(f"client {client}", "proxy", classes, rows)
        record.points("mean", "proxy", classes, mean)
        record.points("mean", "direction", [1], DIRECTION[None])
        record.value("client 1", "class 1", 0, "angle", angle(DIRECTION, LOCAL[0, 1]))
        record.value("mean", "class 1", 0, "angle", angle(DIRECTION, mean[1]))
        for label in classes:
            record.value("mean", f"class {label}", 0, "norm", float(np.linalg.norm(mean[label])))
