"""λ and β of GLDP: {0.25, 0.5, 0.75} inside Table 4's 0, 0.5, 1 and {0.1, 0.5, 0.9} around the paper's
0.5.
"""

from __future__ import annotations

SPACE = {"lam": [0.25, 0.5, 0.75], "beta": [0.1, 0.5, 0.9]}
