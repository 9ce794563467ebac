"""The device of this folder."""

from __future__ import annotations

import pytest
import torch

from tests.devices import elsewhere


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if torch.cuda.is_available():
        pytest.skip("torch has one accelerator at a time, and here it is a GPU (test_gpu.py)")
    return elsewhere.install(monkeypatch.setattr)
