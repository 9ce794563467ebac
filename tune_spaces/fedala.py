"""η_W and s of FedALA: 1 and 0.8 are the authors' (Zhang et al. 2023, which also tries smaller slices); the
other values lie around them.
"""

from __future__ import annotations

SPACE = {"eta": [0.1, 1.0, 10.0], "share": [0.4, 0.8]}
