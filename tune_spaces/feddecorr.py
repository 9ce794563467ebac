"""β of FedDecorr: {0.01, 0.05, 0.1, 0.2, 0.3}, the values that Shi et al. 2023 compare; their scripts have 0.1
and 0.05.
"""

from __future__ import annotations

SPACE = {"beta": [0.01, 0.05, 0.1, 0.2, 0.3]}
