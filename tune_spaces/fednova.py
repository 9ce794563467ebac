"""Server momentum of FedNova: the factors of MAP's code (baselines-map.md §15), and none."""

from __future__ import annotations

from ray import tune

SPACE = {"gmf": tune.grid_search([0.0, 0.3, 0.5, 0.9])}
