"""torchvision's classification networks, and its weights for ImageNet from its cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision
from torchvision.ops import StochasticDepth

import raffed
from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.models import build
from raffed.models.net import Dropout, Net
from raffed.models.own import factories
from raffed.models.own.factories import torchvision_names
from raffed.runtime.initial_weights import plain_module
from tests.models.torchvision_table import PAGE, line_of

ROW = re.compile(r"^\| (\w+) \|(?:[^|]*\|){3} (yes|no|not tried) \| (yes|no|not tried) \|", re.MULTILINE)


def test_torchvision_has_eighty_networks_and_the_page_has_a_row_for_each() -> None:
    assert len(torchvision_names()) == 80
    assert [name for name, _, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))] == list(torchvision_names())


@pytest.mark.slow
@pytest.mark.parametrize("name", torchvision_names())
def test_every_network_is_found_as_the_page_says(name: str) -> None:
    rows = {name: alone for name, alone, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert line_of(name).trains == (rows[name] != "no")


def test_stochastic_depth_draws_from_the_client_s_stream() -> None:
    net = build("torchvision:convnext_tiny", (3, 32, 32), 5, 0)
    left = [layer for layer in net.modules() if isinstance(layer, StochasticDepth)]
    assert all(layer.p == 0 for layer in left)  # those draw nothing
    assert sum(isinstance(layer, Dropout) for layer in net.modules()) == 18 - len(left)


@pytest.mark.parametrize("name", ["tests.models.own_nets:SmallNet", "mlp"])
def test_onnx_runtime_computes_the_scores_of_the_module(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    raffed.run(
        raffed.RunConfig(
            data=raffed.Data(split="iid:2", samples=200),
            federation=raffed.Federation(rounds=1),
            runtime=raffed.Runtime(execution="serial"),
            model=raffed.Model(name=name),
        ),
        tmp_path / "run",
    )
    raffed.export(tmp_path / "run", onnx=tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    model = raffed.load_model(tmp_path / "run")
    assert [one.name for one in session.get_inputs()] == ["inputs"]
    for batch in (1, 5):
        x = torch.rand(batch, 1, 8, 8, generator=torch.Generator().manual_seed(batch))
        found = torch.from_numpy(session.run(["scores"], {"inputs": x.numpy()})[0])
        with torch.no_grad():
            made = model(x)
        scores = made if isinstance(made, torch.Tensor) else made[0]
        assert found.shape == (batch, 10)
        assert torch.allclose(found, scores, rtol=1e-4, atol=1e-5)


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


def test_all_weights_but_the_head_s_are_the_file_s(cached: Callable[..., Weights]) -> None:
    stored, random = cached(), plain_module(built()).state_dict()
    found = plain_module(built(pretrained=True)).state_dict()
    for name, value in found.items():
        assert torch.equal(value, (random if name.startswith("fc.") else stored)[name]), name


def test_a_file_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = factories.weights_file(NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a file")
    with pytest.raises(UsageError, match="put the file back"):
        built(pretrained=True)
