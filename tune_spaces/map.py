"""α × λ × μ of MAP, as in its Fig. 11. The printed sets are missing from the text at hand: {0.1, 0.5, 0.9},
{0.01, 0.1, 0.5} and {0.1, 0.5, 0.9} are inferred from the released scripts (docs/papers/map.md §E6, Fig. 11).
λ and μ move personalization only.
"""

from __future__ import annotations

SPACE = {
    "alpha": [0.1, 0.5, 0.9],
    "lam": [0.01, 0.1, 0.5],
    "mu": [0.1, 0.5, 0.9],
}
