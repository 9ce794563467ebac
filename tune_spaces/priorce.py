"""τ of PriorCE: {0.5, 1, 1.5}, around the 1 of Ren et al. 2020 and Menon et al. 2021; no paper has a grid for
clients.
"""

from __future__ import annotations

SPACE = {"tau": [0.5, 1.0, 1.5]}
