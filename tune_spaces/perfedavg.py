"""α and β of Per-FedAvg: {0.001, 0.01} each, our proposal around FL-bench's 0.01 and 0.001."""

from __future__ import annotations

SPACE = {"inner_lr": [0.001, 0.01], "outer_lr": [0.001, 0.01]}
