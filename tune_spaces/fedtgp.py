"""λ of FedTGP: powers of ten around the official default 1 and its script's 10 (Zhang et al. 2024)."""

from __future__ import annotations

SPACE = {"lam": [0.1, 1.0, 10.0]}
