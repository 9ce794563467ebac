"""β of FedNTD around the authors' 1 and FedVLS's 0.1 (Guo et al. 2025); τ of the authors' configuration (1)
and of their class (3) (Lee-Gihun/FedNTD).
"""

from __future__ import annotations

SPACE = {"beta": [0.1, 0.3, 0.5, 1.0, 3.0], "tau": [1.0, 3.0]}
