"""α of FedRS: {0.9, 0.5, 0.1}, the grid of MAP's released scripts (lxcnju/MAP); Li & Zhan 2021 mainly use
0.5.
"""

from __future__ import annotations

SPACE = {"alpha": [0.9, 0.5, 0.1]}
