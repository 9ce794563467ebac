"""FedAvg+FT has nothing to search: ten head epochs are the protocol."""

from __future__ import annotations

SPACE: dict[str, object] = {}
