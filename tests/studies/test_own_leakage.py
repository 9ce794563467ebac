"""The leakage study with a method and a network of one's own, named by reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raffed.attacks.protocol import leakage
from raffed.config.run import RunConfig
from raffed.config.sections import Model
from raffed.errors import UsageError

OWN = """
from torch import nn

from raffed import Method, Term


class Far(Term):
    "Adds so steep a term that the gradient says little about the image."

    size: float

    def loss(self, f, k):
        return self.size * f.w.sq_norm()


def hidden(size: float = 10.0) -> Method:
    return Method("Hidden", terms=(Far(size),))


class Smooth(nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        sizes = ((in_shape[0], 2), (12, 2), (12, 1))
        layers = [nn.Conv2d(size, 12, 5, padding=2, stride=stride) for size, stride in sizes]
        self.layers = nn.ModuleList(layers)
        self.fc = nn.Linear(48, num_classes)
        for one in self.parameters():
            nn.init.uniform_(one, -0.5, 0.5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).sigmoid()
        return self.fc(x.flatten(1))
"""
QUICK = {"images": 1, "iterations": 40, "restarts": 2}


def asked(method: str = "fedavg", **args: float) -> RunConfig:
    return RunConfig(method=method, args=args, model=Model("./own.py:Smooth"))


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    yield
    for name in [name for name in sys.modules if name.startswith("raffed_file_")]:
        del sys.modules[name]


@pytest.mark.more
def test_an_own_network_gives_its_image_away_under_fedavg_and_an_own_method_is_what_the_client_runs() -> None:
    found = leakage(asked(), **QUICK)
    assert found["mse"] < 0.001
    assert (found["recognised"], found["label attack"]) == (1.0, 1.0)
    assert leakage(asked("./own.py:hidden", size=0.0), **QUICK) == found
    assert leakage(asked("./own.py:hidden"), **QUICK)["mse"] > 0.01


def test_what_cannot_be_attacked_is_refused() -> None:
    with pytest.raises(UsageError, match="exactly one step"):
        leakage(asked("pfedme"), **QUICK)
    with pytest.raises(UsageError, match="images"):
        leakage(asked(), images=0)
