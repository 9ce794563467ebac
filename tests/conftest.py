"""What every test shares: one torch thread, bounded hypothesis, and no test may move torch's global generator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("raffed", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raffed")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
