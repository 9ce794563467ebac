"""A method declares what it requires of the network, and the run builds the network accordingly."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Model, RunConfig
from raffed.core import seeds
from raffed.errors import UsageError
from raffed.models.last_layers import UnitFeatures, simplex_etf
from raffed.models.net import Net
from raffed.runtime.run_method import network_args
from raffed.runtime.setup import prepare_run
from tests.runtime.conftest import small


def test_what_the_method_requires_is_added_to_what_the_run_gives() -> None:
    config = RunConfig("fedetf", {"scale": 2.0}, model=Model("mlp", {"hidden": [16], "features": "l2"}))
    assert network_args(config) == {
        "hidden": [16],
        "feature_layer": True,
        "features": "l2",
        "feature_scale": 2.0,
        "learn_scale": True,
        "head_init": "etf",
        "head_bias": False,
    }


BODY_APART = "trains the body of the network apart, and linear has no weights"


@pytest.mark.parametrize(
    ("method", "model", "said"),
    [
        ("fedetf", Model("mlp", {"features": "raw"}), "features = l2, and model.args has features = raw"),
        ("fedetf", Model("mlp", {"head_bias": True}), "head_bias = false, and model.args has head_bias ="),
        ("fedetf", Model("tests.models.own_nets:OwnFeatures"), "of this name itself; rename that one"),
        ("fedgela", Model("mlp", {"hidden": [8]}), "8 is below 10; use a network with wider features"),
        *((name, Model("linear"), BODY_APART) for name in ("fedrep", "fedbabu", "mpfedcon", "pfedfda")),
    ],
)
def test_a_network_that_the_method_cannot_have_is_refused_before_work_starts(
    method: str, model: Model, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        prepare_run(replace(small(method), model=model))


@pytest.mark.parametrize("model", [Model("mlp", {"hidden": [16]}), Model("tests.models.own_nets:chain")])
def test_a_run_with_default_arguments_says_what_it_chose_and_its_model_has_it(
    model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(small("fedetf", 2), model=model)
    with caplog.at_level(logging.WARNING):
        raffed.run(config, out=tmp_path / "run")
    assert "FedETF builds the network with feature_layer = true, features = l2" in caplog.text
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["effective"]["network"]["head_init"] == "etf"
    assert about["config"]["model"]["args"] == dict(model.args)
    loaded = raffed.load_model(tmp_path / "run")
    assert any(isinstance(layer, UnitFeatures) for layer in loaded.modules())
    width = 16 if isinstance(loaded, Net) else 64
    frame = simplex_etf(10, width, seeds.seed(config.seed, "weights"))
    head = [one for name, one in loaded.state_dict().items() if name.endswith("head.weight")]
    assert torch.equal(head[0], frame)


def test_an_identity_does_not_depend_on_what_the_method_adds() -> None:
    plain, spelled = (replace(small("fedbabu"), model=Model("mlp", a)) for a in ({}, {"head_init": "etf"}))
    assert plain.identity() != spelled.identity()
    assert small("fedetf").as_dict()["model"] == small("fedavg").as_dict()["model"]
