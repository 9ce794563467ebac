"""σ, ξ_ii and λ/α of HeurFedAMP: 25, 1/N (0) and 1e-4 are FLGo's (WwZzz/easyFL); the other values lie around
them, because the paper's could not be read. σ = 0 is the uniform mean of the others.
"""

from __future__ import annotations

SPACE = {
    "sigma": [0.0, 1.0, 5.0, 10.0, 25.0, 100.0],
    "self_weight": [0.0, 0.1, 0.3, 0.5],
    "pull": [0.0, 1e-3, 1e-2, 1e-1, 1.0],
}
