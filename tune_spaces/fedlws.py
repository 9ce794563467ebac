"""β and the largest τ of FedLWS around the official code's 0.03 and 0.2 (ChanglongShi/FedLWS)."""

from __future__ import annotations

SPACE = {"beta": [0.01, 0.03, 0.1], "high": [0.1, 0.2, 0.5]}
