"""μ of MOON: {0.1, 1, 5} of the official README's grid (QinbinLi/MOON), τ = 0.5."""

from __future__ import annotations

from ray import tune

SPACE = {"mu": tune.grid_search([0.1, 1.0, 5.0])}
