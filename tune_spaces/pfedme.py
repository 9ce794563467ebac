"""λ and η_p of pFedMe: {15, 20, 30} and {0.01, 0.05, 0.1} of the official scripts (CharlieDinh/pFedMe)."""

from __future__ import annotations

SPACE = {"lam": [15.0, 20.0, 30.0], "personal_lr": [0.01, 0.05, 0.1]}
