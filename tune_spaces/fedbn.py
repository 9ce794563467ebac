"""What FedBN keeps: whole BatchNorm layers (Li et al. 2021), or only their statistics (SiloBN, Andreux et al.
2020).
"""

from __future__ import annotations

SPACE = {"kept": ["layers", "statistics"]}
