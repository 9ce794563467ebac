"""α × λ × μ of ScaMAP: the sets inferred for MAP's Fig. 11; the server rate stays at 1 (Karimireddy et
al. 2020).
"""

from __future__ import annotations

SPACE = {
    "alpha": [0.1, 0.5, 0.9],
    "lam": [0.01, 0.1, 0.5],
    "mu": [0.1, 0.5, 0.9],
}
