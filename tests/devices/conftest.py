"""What torch cannot be told of a device made in Python: how `torch.tensor` puts one there, and a random generator of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core import dropout, seeds
from tests.devices import elsewhere


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device. Dropout's numbers are drawn on the CPU and moved, so that they are those of a run on the CPU."""
    made, plain, drawn = elsewhere.device(), torch.tensor, dropout.draw
    owners: dict[int, torch.device] = {}
    kept: list[torch.Generator] = []

    def tensor(*args: Any, device: torch.device | None = None, **kwargs: Any) -> Tensor:
        return plain(*args, **kwargs) if device is None else plain(*args, **kwargs).to(device)

    def generator_on(where: torch.device, *key: Any) -> torch.Generator:
        kept.append(seeds.generator(*key))
        owners[id(kept[-1])] = where
        return kept[-1]

    def draw(shapes: list[tuple[int, ...]], generator: torch.Generator) -> list[Tensor]:
        return [t.to(owners.get(id(generator), "cpu")) for t in drawn(shapes, generator)]

    monkeypatch.setattr(torch, "tensor", tensor)
    monkeypatch.setattr(seeds, "generator_on", generator_on)
    monkeypatch.setattr(dropout, "draw", draw)
    return made
