"""λ of FedMMD: {0.001, 0.01, 0.1} of MAP's released scripts."""

from __future__ import annotations

SPACE = {"lam": [0.001, 0.01, 0.1]}
