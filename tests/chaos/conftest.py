"""The Ray of tests/runtime."""

from __future__ import annotations

from tests.runtime.conftest import ray_here

__all__ = ["ray_here"]
