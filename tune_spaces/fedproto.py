"""λ of FedProto: 1 (official default) and 0.1 (its value for CIFAR-10), Tan et al. 2022."""

from __future__ import annotations

SPACE = {"lam": [0.1, 1.0]}
