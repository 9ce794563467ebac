"""The Ray of tests/runtime."""

from __future__ import annotations

from tests.runtime.conftest import carrier, ray_here

__all__ = ["carrier", "ray_here"]
