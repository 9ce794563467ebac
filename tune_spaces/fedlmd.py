"""β of FedLMD around the authors' 1 and FedVLS's 0.1 (Guo et al. 2025). The authors print no grid, so this is
FedNTD's, on whose code theirs is built (wnma3mz/FedLMD).
"""

from __future__ import annotations

SPACE = {"beta": [0.1, 0.3, 0.5, 1.0, 3.0]}
