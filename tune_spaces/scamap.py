"""α × λ × μ of ScaMAP: the sets inferred for MAP's Fig. 11; the server rate stays at 1 (Karimireddy et al. 2020)."""

from __future__ import annotations

from ray import tune

SPACE = {
    "alpha": tune.grid_search([0.1, 0.5, 0.9]),
    "lam": tune.grid_search([0.01, 0.1, 0.5]),
    "mu": tune.grid_search([0.1, 0.5, 0.9]),
}
