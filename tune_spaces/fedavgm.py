"""Server rate of FedAvgM: {1, 0.1, 0.05} of MAP's released scripts (lxcnju/MAP, row FedOpt), momentum 0.9."""

from __future__ import annotations

SPACE = {"server_lr": [1.0, 0.1, 0.05]}
