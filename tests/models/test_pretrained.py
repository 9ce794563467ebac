"""torchvision's weights for ImageNet, from its cache; nothing is downloaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision

from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.models import build
from raffed.models.net import Net
from raffed.models.own import factories
from raffed.runtime.initial_weights import plain_module

NAME = "shufflenet_v2_x0_5"
Weights = dict[str, torch.Tensor]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Weights]:
    """cached(name) puts weights for 1,000 classes where torchvision would keep them, and returns them."""

    def put(name: str = NAME) -> Weights:
        weights: Weights = torchvision.models.get_model(name).state_dict()
        path = tmp_path / "weights.pth"
        torch.save(weights, path)
        made = path.rename(path.with_name(f"{NAME}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.pth"))
        monkeypatch.setattr(factories, "weights_file", lambda _: made)
        return weights

    return put


def built(**args: Value) -> Net:
    return build(f"torchvision:{NAME}", (3, 32, 32), 10, 0, **args)


def test_all_weights_but_the_head_s_are_the_file_s_and_the_head_is_that_of_the_seed(
    cached: Callable[..., Weights],
) -> None:
    stored, random = cached(), plain_module(built()).state_dict()
    found = plain_module(built(pretrained=True)).state_dict()
    for name, value in found.items():
        assert torch.equal(value, (random if name.startswith("fc.") else stored)[name]), name


def test_a_file_that_is_not_there_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=rf"shufflenetv2\S+.pth in {tmp_path}/hub/checkpoints"):
        built(pretrained=True)


def test_a_file_with_another_hash_than_its_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = factories.weights_file(NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a file")
    with pytest.raises(UsageError, match="put the file back"):
        built(pretrained=True)
