"""Size of the noise: the two of MpFedcon's Table 4, with one in between."""

from __future__ import annotations

from ray import tune

SPACE = {"size": tune.grid_search([0.0001, 0.001, 0.01])}
