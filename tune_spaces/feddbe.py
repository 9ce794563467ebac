"""κ and μ of FedDBE: from the parser's to the scripts' values of the official code (Zhang et al. 2023)."""

from __future__ import annotations

SPACE = {"kappa": [0.0, 0.1, 1.0, 10.0, 50.0], "mu": [0.1, 0.5, 1.0]}
