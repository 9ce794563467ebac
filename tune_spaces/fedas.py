"""η_a of FedAS: 0.01 is fixed in the authors' code (xiyuanyang45/FedAS); the other values are a third of it
and three times it.
"""

from __future__ import annotations

SPACE = {"align_lr": [0.003, 0.01, 0.03]}
