"""ρ of FedSAM around the values of public codes: 0.05 (FedDecorr) and 0.1 (debcaldarola/fedsam,
FL-Simulator, FedVLS).
"""

from __future__ import annotations

SPACE = {"rho": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]}
