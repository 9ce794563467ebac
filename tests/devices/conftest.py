"""The device of this folder."""

from __future__ import annotations

import pytest
import torch

from tests.devices import elsewhere


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    return elsewhere.install(monkeypatch.setattr)
