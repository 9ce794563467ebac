"""FedPer has no hyper-parameter of its own."""

from __future__ import annotations

SPACE: dict[str, object] = {}
