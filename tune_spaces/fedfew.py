"""K and μ of FedFew: both are varied in the authors' configurations (pgg3/FedFew), K from 1 to 10."""

from __future__ import annotations

SPACE = {"models": [2, 3, 5], "mu": [0.001, 0.01, 0.1, 1.0]}
