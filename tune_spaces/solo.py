"""SOLO has nothing to search."""

from __future__ import annotations

SPACE: dict[str, object] = {}
