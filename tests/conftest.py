"""What every test shares: one torch thread, bounded hypothesis, no waiting for the disk, and no test may move
torch's global generator.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "raffed", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("raffed")

START_RAY = tuple(
    f"tests/{place}"
    for place in (
        "reliability/",
        "cluster/test_nodes.py",
        "runtime/ray/",
        "search/test_resume.py",
        "search/test_trial.py",
        "search/test_tune.py",
    )
)


SHARE_ROUNDS = tuple(
    f"tests/contract/test_{name}.py" for name in ("every_method", "cohort", "objectives", "wire")
)


def pytest_configure(config: pytest.Config) -> None:
    """torch has one accelerator at a time. Where no GPU is, it takes the device of tests/devices.

    The process that only hands out tests to others (pytest-xdist) does not import torch, for which they would
    wait.
    """
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        return
    import torch

    from tests.devices import elsewhere

    if not torch.cuda.is_available():
        elsewhere.register()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start Ray come first: together they are the longest share of one of the processes of
    `make test`.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(START_RAY))


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Processes take whole files, so that a file's fixtures are made once. One takes all that start Ray,
    which wants both cores, and one all that begin with the same rounds of every method
    (`tests.tiny.experienced`).
    """
    from xdist.scheduler import LoadFileScheduling

    class SomeTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SHARE_ROUNDS):
                return "rounds"
            return "ray" if nodeid.startswith(START_RAY) else super()._split_scope(nodeid)

    return SomeTogether(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What was imported stays until the end, so the garbage collector need not look through it again.

    pytest adds its handlers six times a test to every logger that does not propagate. torch has 45 of those:
    they propagate from now on.
    """
    gc.freeze()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One torch thread in every test, whatever the test before it left."""
    import torch

    torch.set_num_threads(1)


FSYNC, SYNC = os.fsync, os.sync


@pytest.fixture(autouse=True)
def nothing_read_or_said_before() -> None:
    """What files have named in earlier tests, and where code was found, a new process would not know."""
    if "raffed.own.gate" in sys.modules:
        from tests.forging import forget_references

        forget_references()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Runs in this process flush their files by name only.

    A test's files need not survive a loss of power, and a run flushes some 30 files, each of which waits 5 ms
    for the disk. What must be flushed, and before what, is held by tests that see every call. Those whose
    subject is the disk use `real_disk`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            os, "fsync", lambda file: os.fstat(file if isinstance(file, int) else file.fileno()) and None
        )
        patch.setattr(os, "sync", lambda: None)
        yield


@pytest.fixture
def real_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are flushed to the disk, as outside the tests."""
    monkeypatch.setattr(os, "fsync", FSYNC)
    monkeypatch.setattr(os, "sync", SYNC)
