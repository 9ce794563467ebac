"""λ and part of cwFedAvg: λ = 10 and both parts are the authors' (regulationLee/cwFedAvg); the other values
of λ lie around it, and 0 leaves the regulariser out.
"""

from __future__ import annotations

SPACE = {"wdr": [0.0, 1.0, 5.0, 10.0, 20.0], "part": ["head", "all"]}
