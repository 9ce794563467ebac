"""a and b of FedDisco: around the official code's 0.5 and 0.1 (Ye et al. 2023)."""

from __future__ import annotations

SPACE = {"a": [0.1, 0.5, 1.0], "b": [0.0, 0.1, 0.3]}
