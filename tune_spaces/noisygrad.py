"""Size of the noise: the two of MpFedcon's Table 4, with one in between."""

from __future__ import annotations

SPACE = {"size": [0.0001, 0.001, 0.01]}
