"""α of FedDyn: {0.001, 0.01, 0.1}; 0.01 in all official examples (alpemreacar/FedDyn)."""

from __future__ import annotations

SPACE = {"alpha": [0.001, 0.01, 0.1]}
