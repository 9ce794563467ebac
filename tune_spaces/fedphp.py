"""Transfer and λ of FedPHP. MAP's released scripts try (KD, 0.1), (MMD, 0.1), (MMD, 0.01); here the product
of the two.

μ stays at the 0.9 that both author repositories (lxcnju/MAP, lxcnju/FedRepo) use.
"""

from __future__ import annotations

SPACE = {"transfer": ["kd", "mmd"], "lam": [0.1, 0.01]}
