"""ρ of FedNH: {0.5, 0.7, 0.9, 0.99}, around the 0.9 of the official code; s: 1 and 20, with which its CNN and
its ResNet begin.
"""

from __future__ import annotations

SPACE = {"rho": [0.5, 0.7, 0.9, 0.99], "scale": [1.0, 20.0]}
