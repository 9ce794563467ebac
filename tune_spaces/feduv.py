"""λ × μ of FedUV: {0.5, 1, 2.5, 5} × {0.1, 0.5, 1}, around the released code's 2.5 and 0.5 (Son et al. 2024);
the paper's grid was not found.
"""

from __future__ import annotations

SPACE = {"lam": [0.5, 1.0, 2.5, 5.0], "mu": [0.1, 0.5, 1.0]}
