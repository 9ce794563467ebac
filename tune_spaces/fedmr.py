"""μ1 × μ2 of FedMR: {0.001, 0.01, 0.1} × {0.01, 0.1, 1} for the released normalisation and raw distances.

The paper (Fan et al. 2023) searched a grid whose values are in an appendix that was not found; these are
docs/papers/fedmr.md §6's proposal. For a network without BatchNorm before its features that section asks for
smaller ones: `--grid mu2=0.001,0.01,0.1`.
"""

from __future__ import annotations

SPACE = {"mu1": [0.001, 0.01, 0.1], "mu2": [0.01, 0.1, 1.0]}
