"""α of APFL: {0.25, 0.5, 0.75}, the grid recalled from Deng et al. 2020; fixed α."""

from __future__ import annotations

SPACE = {"alpha": [0.25, 0.5, 0.75]}
