"""What every test shares: one torch thread, bounded hypothesis, and no test may move torch's global generator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("raffed", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raffed")

HERE = Path(__file__).parent
START_RAY = ("chaos/", "cluster/", "runtime/", "sweeps/", "cli/test_cli_ray.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The processes of `make test` take whole files, so that a file's fixtures are made once, but for those that start Ray:
    one process takes all of them, since each Ray wants both cores, and begins with them, since they are the longest share."""
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        item.add_marker(pytest.mark.xdist_group("ray" if place.startswith(START_RAY) else place))
    items.sort(key=lambda item: not item.path.relative_to(HERE).as_posix().startswith(START_RAY))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
