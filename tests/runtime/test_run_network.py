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
from raffed.runtime.network_setup import make_network
from raffed.runtime.run_method import network_args
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import check_network
from tests.runtime.conftest import small


def test_a_method_that_requires_nothing_leaves_the_arguments_as_they_are() -> None:
    model = Model("mlp", {"hidden": [16]})
    assert network_args(RunConfig("fedavg", model=model)) == {"hidden": [16]}


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


@pytest.mark.parametrize(("name", "value", "said"), [("features", "raw", "raw"), ("head_bias", True, "true")])
def test_another_value_is_refused_before_work_starts(name: str, value: object, said: str) -> None:
    config = replace(small("fedetf"), model=Model("mlp", {name: value}))  # type: ignore[dict-item]
    wanted = {"features": "l2", "head_bias": "false"}[name]
    with pytest.raises(UsageError) as refused:
        prepare_run(config)
    assert str(refused.value) == (
        f"FedETF requires a network with {name} = {wanted}, and model.args has {name} = {said}; leave it out "
        "(--model-arg)"
    )


def test_a_network_of_one_s_own_that_uses_the_name_for_something_else_is_refused() -> None:
    config = replace(small("fedetf"), model=Model("tests.models.own_nets:OwnFeatures"))
    with pytest.raises(UsageError, match="has an argument of this name itself; rename that one"):
        prepare_run(config)


def test_too_few_features_are_refused_before_work_starts() -> None:
    config = replace(small("fedgela"), model=Model("mlp", {"hidden": [8]}))
    with pytest.raises(UsageError, match="8 is below 10; use a network with wider features"):
        prepare_run(config)


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


def test_every_process_makes_the_same_head() -> None:
    one, two = (make_network(prepare_run(small("fedloge"))).initial.w["head.weight"] for _ in range(2))
    assert torch.equal(one, two)


def test_an_identity_does_not_depend_on_what_the_method_adds() -> None:
    plain, spelled = (replace(small("fedbabu"), model=Model("mlp", a)) for a in ({}, {"head_init": "etf"}))
    assert plain.identity() != spelled.identity()
    assert small("fedetf").as_dict()["model"] == small("fedavg").as_dict()["model"]


@pytest.mark.parametrize("method", ["fedrep", "fedbabu", "mpfedcon", "pfedfda"])
def test_a_method_that_trains_the_body_apart_refuses_a_network_without_weights_there(method: str) -> None:
    config = RunConfig(method=method, model=Model("linear"))
    with pytest.raises(UsageError, match=r"trains the body of the network apart, and linear has no weights"):
        check_network(config, (1, 8, 8), 10)


def test_a_method_that_trains_the_whole_network_takes_a_linear_one() -> None:
    check_network(RunConfig(method="fedprox", model=Model("linear")), (1, 8, 8), 10)
