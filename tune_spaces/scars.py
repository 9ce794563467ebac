"""α of ScaRS: FedRS's {0.9, 0.5, 0.1} (lxcnju/MAP); the server rate stays at 1 (Karimireddy et al. 2020)."""

from __future__ import annotations

from ray import tune

SPACE = {"alpha": tune.grid_search([0.9, 0.5, 0.1])}
