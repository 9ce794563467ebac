"""μ of FedProx: {0.001, 0.01, 0.1, 1}, the grid of the authors' README (Li et al. 2020, litian96/FedProx)
without its 0.5.
"""

from __future__ import annotations

SPACE = {"mu": [0.001, 0.01, 0.1, 1.0]}
