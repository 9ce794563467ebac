"""λ and β of FedACG around the official code's 0.85 and 1e-3 (geehokim/FedACG), β up to a strong pull."""

from __future__ import annotations

SPACE = {"lam": [0.5, 0.7, 0.85, 0.9], "beta": [0.0, 1e-4, 1e-3, 1e-2]}
