"""M_c of CCVR: the paper tries 100, 500 and 1000; 2000 is one step further (Luo et al. 2021)."""

from __future__ import annotations

SPACE = {"virtual": [100, 500, 2000]}
