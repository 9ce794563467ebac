"""λ of FedMMD: {0.001, 0.01, 0.1} of MAP's released scripts."""

from __future__ import annotations

from ray import tune

SPACE = {"lam": tune.grid_search([0.001, 0.01, 0.1])}
