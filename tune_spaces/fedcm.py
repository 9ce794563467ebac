"""α of FedCM around the 0.1 of FL-Simulator (woodenchild95/FL-Simulator) and of FedWMSAM's repository, up to
steps that hardly have momentum.
"""

from __future__ import annotations

SPACE = {"alpha": [0.05, 0.1, 0.2, 0.5, 0.9]}
