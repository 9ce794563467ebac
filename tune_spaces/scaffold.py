"""Server rate η_g of SCAFFOLD: 1 (Karimireddy et al. 2020) and {0.9, 0.75, 0.5} of MAP's released scripts
(lxcnju/MAP).
"""

from __future__ import annotations

SPACE = {"server_lr": [1.0, 0.9, 0.75, 0.5]}
