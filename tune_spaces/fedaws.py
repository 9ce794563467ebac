"""Margin and server rate of FedAwS: the values of MAP's released scripts; here their product, at 30 steps.

The scripts try (ν, steps, rate) = (0.9, 20, 1.0), (0.8, 30, 0.1), (0.5, 50, 0.01).
"""

from __future__ import annotations

SPACE = {"nu": [0.9, 0.8, 0.5], "server_lr": [1.0, 0.1, 0.01]}
