"""M and ε of FedFomo: ε 0.3 is the authors' (NVlabs/FedFomo), whose M are 4 and 9; 0 is no exploration."""

from __future__ import annotations

SPACE = {"models": [3, 5, 10], "explore": [0.0, 0.3]}
