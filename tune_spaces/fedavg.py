"""FedAvg has no hyper-parameters of its own; its learning rate is searched with `--grid
local.lr=0.01,0.03,0.1`.
"""

from __future__ import annotations

SPACE: dict[str, list[float]] = {}
