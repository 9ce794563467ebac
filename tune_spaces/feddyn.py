"""α of FedDyn: {0.001, 0.01, 0.1}; 0.01 in all official examples (alpemreacar/FedDyn)."""

from __future__ import annotations

from ray import tune

SPACE = {"alpha": tune.grid_search([0.001, 0.01, 0.1])}
