"""Server momentum of FedNova: the factors of MAP's code (docs/papers/baselines.md, Grids), and none."""

from __future__ import annotations

SPACE = {"gmf": [0.0, 0.3, 0.5, 0.9]}
