"""λ and the head's rate of FedPAC: 1 and 10 times the body's are the authors' (JianXu95/FedPAC); the other
values lie around them.
"""

from __future__ import annotations

SPACE = {"lam": [0.0, 0.1, 1.0, 5.0], "head_lr_scale": [1.0, 10.0]}
