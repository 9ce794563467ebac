"""λ and η_p of pFedMe: {15, 20, 30} and {0.01, 0.05, 0.1} of the official scripts (CharlieDinh/pFedMe)."""

from __future__ import annotations

from ray import tune

SPACE = {"lam": tune.grid_search([15.0, 20.0, 30.0]), "personal_lr": tune.grid_search([0.01, 0.05, 0.1])}
