"""μ of MOON: {0.1, 1, 5} of the official README's grid (QinbinLi/MOON), τ = 0.5."""

from __future__ import annotations

SPACE = {"mu": [0.1, 1.0, 5.0]}
