"""γ of FedROD: {1, 0.5, 0.25} of MAP's released scripts; 1 is the original."""

from __future__ import annotations

SPACE = {"gamma": [1.0, 0.5, 0.25]}
