"""α and β of Per-FedAvg: {0.001, 0.01} each, the sheet's proposal around FL-bench's 0.01 and 0.001."""

from __future__ import annotations

from ray import tune

SPACE = {"inner_lr": tune.grid_search([0.001, 0.01]), "outer_lr": tune.grid_search([0.001, 0.01])}
