"""Rate of FedDF's distillation: {1e-2, 1e-3, 1e-4} of MAP's released scripts, at 300 steps."""

from __future__ import annotations

SPACE = {"server_lr": [0.01, 0.001, 0.0001]}
