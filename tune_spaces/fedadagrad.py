"""Server rate of FedAdagrad: powers of ten around the 0.1 of FL-bench (Reddi et al. 2021 search a log
grid from 1e-3 to 10).
"""

from __future__ import annotations

SPACE = {"server_lr": [0.001, 0.01, 0.1, 1.0]}
