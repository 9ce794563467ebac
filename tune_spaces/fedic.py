"""Rate of FEDIC's server: ten times the official 1e-3 and a tenth of it, our grid; all else is fixed in
the official code.
"""

from __future__ import annotations

SPACE = {"server_lr": [0.01, 0.001, 0.0001]}
