"""ε of FedExP: powers of ten around the official code's 1e-3 and 0.1 (Jhunjhunwala et al. 2023)."""

from __future__ import annotations

SPACE = {"epsilon": [1e-4, 1e-3, 1e-2, 1e-1]}
