"""β of FedDecorr: {0.01, 0.05, 0.1, 0.2, 0.3}, as compared by Shi et al. 2023; their scripts: 0.1, 0.05."""

from __future__ import annotations

SPACE = {"beta": [0.01, 0.05, 0.1, 0.2, 0.3]}
