"""CReFF has nothing to search here: the official code (shangxinyi/CReFF-FL) fixes its server settings."""

from __future__ import annotations

SPACE: dict[str, object] = {}
