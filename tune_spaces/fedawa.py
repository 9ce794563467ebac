"""Rate and steps of FedAWA's server from the official code's 1e-3 and 1 (ChanglongShi/FedAWA), which hardly
move the weights, and its two distances.
"""

from __future__ import annotations

SPACE = {"rate": [1e-3, 1e-2, 1e-1], "server_epochs": [1, 10], "distance": ["cosine", "square"]}
