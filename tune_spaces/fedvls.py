"""λ of FedVLS: {0.05, 0.1, 0.25, 0.5, 1}, the grid of Guo et al. 2025."""

from __future__ import annotations

SPACE = {"lam": [0.05, 0.1, 0.25, 0.5, 1.0]}
