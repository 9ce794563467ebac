"""LG-FedAvg has no coefficient. Which last layers are shared depends on the network (pliang279/LG-FedAvg: the
last two or three); the learning rate is searched with `--grid local.lr=…`.
"""

from __future__ import annotations

SPACE: dict[str, list[str]] = {}
