"""α of ScaRS: FedRS's {0.9, 0.5, 0.1} (lxcnju/MAP); the server rate stays at 1 (Karimireddy et al. 2020)."""

from __future__ import annotations

SPACE = {"alpha": [0.9, 0.5, 0.1]}
