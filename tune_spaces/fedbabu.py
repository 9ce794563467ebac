"""FedBABU has nothing to search: five epochs of fine-tuning are the official code's."""

from __future__ import annotations

SPACE: dict[str, list[float]] = {}
