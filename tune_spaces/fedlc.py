"""τ of FedLC: {0.1, 0.25, 0.5, 1, 2}, around the values of public codes (FedDecorr and FedVLS 0.1, FL-bench
1) and of FedVLS's Table 10 (0.5). The paper's own grid was not found.
"""

from __future__ import annotations

SPACE = {"tau": [0.1, 0.25, 0.5, 1.0, 2.0]}
