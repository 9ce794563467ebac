"""λ of DittoRS as Ditto's {0.1, 1, 2}; α stays at FedRS's 0.5."""

from __future__ import annotations

SPACE = {"lam": [0.1, 1.0, 2.0]}
