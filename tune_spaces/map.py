"""α × λ × μ of MAP, as in its Fig. 11. The printed sets are missing from the text at hand: {0.1, 0.5, 0.9}, {0.01, 0.1, 0.5}
and {0.1, 0.5, 0.9} are inferred from the released scripts (experiments sheet, Fig. 11). λ and μ move personalization only.
"""

from __future__ import annotations

from ray import tune

SPACE = {
    "alpha": tune.grid_search([0.1, 0.5, 0.9]),
    "lam": tune.grid_search([0.01, 0.1, 0.5]),
    "mu": tune.grid_search([0.1, 0.5, 0.9]),
}
