"""ρ of FedWMSAM over Table 6 of the authors' poster without its 0.5, and α from the code's 0.1
(Huang-Yongzhi/NeurlPS_FedWMSAM).
"""

from __future__ import annotations

SPACE = {"rho": [0.005, 0.01, 0.05, 0.1], "alpha": [0.1, 0.3]}
