"""ρ of FedGAMMA around the 0.01 of FL-Simulator's README, up to the 0.1 of its other sharpness-aware methods
(woodenchild95/FL-Simulator). The server rate is 1 in all of them.
"""

from __future__ import annotations

SPACE = {"rho": [0.005, 0.01, 0.02, 0.05, 0.1]}
