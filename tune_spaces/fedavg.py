"""FedAvg has no hyper-parameters of its own; its learning rate is searched with `--grid
local.lr=0.01,0.03,0.1`.
"""

from __future__ import annotations

from typing import Any

SPACE: dict[str, Any] = {}
