"""Ids that a network has no row for are refused before training, also those of the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

NET = """
from torch import nn

class Bag(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(self.words(x).mean(1))
"""


@pytest.mark.parametrize(
    ("training", "test", "refused"),
    [
        (49, 49, ""),
        (49, 50, "id 50, the largest of the test part"),
        (50, 4, "id 50, the largest of the training"),
    ],
)
def test_ids_beyond_the_rows_of_an_embedding_are_refused_before_training(
    training: int, test: int, refused: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET, encoding="utf-8")
    rng = np.random.default_rng(0)
    parts = {}
    for name, largest in {"": training, "_test": test}.items():
        parts[f"x{name}"] = rng.integers(0, largest, (40, 6))
        parts[f"x{name}"][17, 3] = largest
        parts[f"y{name}"] = np.arange(40) % 2
    np.savez("words.npz", **parts)
    done = cli("run", "--dataset", "npz:words.npz", "--split", "iid:2", "--rounds", 1, "--epochs", 1,
               "--model", "./net.py:Bag", "--execution", "serial", "--quiet", "--out", "run")  # fmt: skip
    assert done.code == (2 if refused else 0), done.err
    assert refused in done.err
    assert ("IndexError: index out of range" in done.err) is bool(refused)
    assert (tmp_path / "run").exists() is not bool(refused)
