"""One small sweep for all tests of this folder, on one Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import cli
from tests.runtime.conftest import ray_here

__all__ = ["cli", "ray_here"]
QUICK = ["--split", "p4c5", "--rounds", "2", "--epochs", "1", "--model-arg", "hidden=[8]"]
ASKED = [
    *("tune", "--method", "fedmr", "--method", "fedavg", "--set", "mu2=0.1", "--grid", "mu1=0.01,0.1"),
    *("--grid", "local.lr=0.05,900", "--seeds", "2", "--local-test", "0.2", "--clip-norm", "1e9", "--json"),
    *("--at-once", "1"),  # one process is then enough for all trials of a search
]


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory, ray_here: None) -> Path:
    """FedMR's μ1 over two values and one that diverges, and FedAvg with the same budget, two final seeds.
    Not to be changed.
    """
    from raffed.cli import main

    folder = tmp_path_factory.mktemp("sweep") / "a"
    with pytest.raises(SystemExit) as ended:
        main([*ASKED, *QUICK, "--out", str(folder)])
    assert ended.value.code == 0
    return folder
