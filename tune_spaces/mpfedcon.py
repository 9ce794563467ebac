"""μ of MpFedcon: {0.5, 5, 10} of its Table 2; τ: {0.1, 0.5, 1} of MOON's README, for the paper gives none."""

from __future__ import annotations

SPACE = {"mu": [0.5, 5.0, 10.0], "tau": [0.1, 0.5, 1.0]}
