"""ρ of MoFedSAM from the best of the poster of FedWMSAM (0.01) to FL-Simulator's 0.1, beside FedCM's α."""

from __future__ import annotations

SPACE = {"rho": [0.01, 0.05, 0.1], "alpha": [0.1, 0.3]}
