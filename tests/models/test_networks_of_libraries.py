"""Networks as libraries have them: they return an object with `logits`, and their inputs are ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raffed.models.own.wrapping import OwnNet, as_net
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

NET = """
from dataclasses import dataclass

import torch
from torch import Tensor, nn

@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None

class Bag(nn.Module):
    def __init__(self, num_classes, plain: bool = False):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.register_buffer("places", torch.arange(6))
        self.fc = nn.Linear(8, num_classes)
        self.plain = plain

    def forward(self, x):
        logits = self.fc((self.words(x) * self.places[:, None].cos()).mean(1))
        return logits if self.plain else Output(logits)
"""


@dataclass
class Output:
    logits: Tensor


class Small(nn.Module):
    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.body, self.fc, self.plain = nn.Linear(4, 3), nn.Linear(3, 2), plain

    def forward(self, x: Tensor) -> Tensor | Output:
        scores = self.fc(self.body(x).relu())
        return scores if self.plain else Output(scores)


def test_an_output_with_logits_counts_as_its_logits() -> None:
    plain, within = Small(plain=True), Small(plain=False)
    within.load_state_dict(plain.state_dict())
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    one, other = (as_net(net, in_shape=(4,)) for net in (plain, within))
    for wanted, found in zip(one(x), other(x), strict=True):
        assert torch.equal(wanted, found)
    assert isinstance(other, OwnNet)
    assert {other.user_name(name) for name, _ in other.named_parameters()} == set(
        dict(Small(True).named_parameters())
    )
    assert torch.equal(other.user_module()(x).logits, one(x)[0])


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET, encoding="utf-8")
    rng = np.random.default_rng(0)
    np.savez("words.npz", x=rng.integers(0, 50, (40, 6)), y=np.arange(40) % 2)


@pytest.mark.usefixtures("words")
def test_both_train_to_the_same_accuracies(cli: Cli) -> None:
    said = [
        "--dataset",
        "npz:words.npz",
        "--split",
        "iid:2",
        "--rounds",
        2,
        "--epochs",
        1,
        "--model",
        "./net.py:Bag",
    ]
    rows = []
    for plain in ("true", "false"):
        done = cli(
            "run", *said, "--model-arg", f"plain={plain}", "--execution", "serial", "--json", "--out", plain
        )
        assert done.code == 0, done.err
        rows.append(
            [(event["loss"], event["accuracy"]) for event in done.events if event["event"] == "round"]
        )
    assert rows[0] == rows[1] != []


@pytest.mark.usefixtures("words")
def test_a_check_takes_shape_classes_and_samples_of_a_data_set(cli: Cli) -> None:
    found = cli("check", "./net.py:Bag", "--dataset", "npz:words.npz")
    assert (found.code, "8 checks, none failed" in found.out) == (0, True), found.out
    refused = cli("check", "fedavg", "--dataset", "npz:words.npz")
    assert (refused.code, "--dataset is for networks" in refused.err) == (2, True)
