"""T of FedGELA: {0.05, 0.1, 0.2, 0.5, 1}, around the 0.2 of the official code, whose grid is not stated."""

from __future__ import annotations

SPACE = {"temperature": [0.05, 0.1, 0.2, 0.5, 1.0]}
