"""FedProc has no hyper-parameter of its own: T is the number of rounds."""

from __future__ import annotations

SPACE: dict[str, object] = {}
