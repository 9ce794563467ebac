"""α of FedDC: {0.001, 0.01, 0.1}, around the official examples' 0.01 and 0.1 (gaoliang13/FedDC)."""

from __future__ import annotations

SPACE = {"alpha": [0.001, 0.01, 0.1]}
