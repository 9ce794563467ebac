"""λ of Ditto: {0.1, 1, 2}, the candidates of Li et al. 2021 (litian96/ditto)."""

from __future__ import annotations

SPACE = {"lam": [0.1, 1.0, 2.0]}
