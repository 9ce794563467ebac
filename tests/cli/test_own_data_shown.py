"""What the command line says about data of one's own: at a run's start, in `datasets` and in `check`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Cli

RUN = ("--execution", "serial", "--rounds", 1, "--epochs", 1, "--split", "iid:2", "--model", "mlp")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def images() -> Path:
    draws = np.random.RandomState(0)
    for part, label, number in np.ndindex(3, 2, 6):
        folder = Path("pictures") / ("Training", "val", "Testing")[part] / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (8, 8, 3)).astype(np.uint8)).save(folder / f"{number}.png")
    return Path("pictures")


def test_a_run_says_at_its_start_which_parts_it_uses(cli: Cli, images: Path) -> None:
    done = cli("run", "--dataset", f"folder:{images}", *RUN, "--out", "runs/a")
    assert done.code == 0, done.err
    said = " ".join((done.out + done.err).split())
    assert "the images in 'Training' are trained on, and those in 'Testing' are the test set" in said
    assert "the 12 in 'val' are not used" in said
    assert cli("verify", "runs/a").code == 0
