"""ρ of FedLESAM around the authors' 0.1, up to the 0.5 of their example (MediaBrain-SJTU/FedLESAM)."""

from __future__ import annotations

SPACE = {"rho": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]}
