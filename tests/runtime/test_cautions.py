"""Lines that are printed before a run whose settings are valid but probably unintended."""

from __future__ import annotations

from typing import Any

import pytest

from raffed import Data, Federation, Model, RunConfig, Runtime
from raffed.runs.federation import warn
from raffed.runtime.setup import prepare_run

SIMPLE, NORMALISED = Model("mlp", {"hidden": [4]}), Model("resnet8")


def told(method: str, model: Model, args: dict[str, Any], log: pytest.LogCaptureFixture) -> str:
    config = RunConfig(
        method,
        args,
        Data("digits", "p5c2"),
        model,
        federation=Federation(1),
        runtime=Runtime(execution="serial"),
    )
    with log.at_level("WARNING", logger="raffed"):
        warn(prepare_run(config))
    return log.text


@pytest.mark.parametrize("args", [{}, {"mu2": 0.01}, {"inter_negatives": "local"}, {"share": 0.5}])
def test_fedmr_s_local_prototypes_in_a_network_without_normalisation_are_warned_of(
    args: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    found = told("fedmr", SIMPLE, args, caplog)
    assert found.count("can destroy training in a network without normalisation") == 1
    assert "FedMR with mlp: prototypes of trained local models" in found
    assert "use prototype_from = global, or a network with BatchNorm" in found


@pytest.mark.parametrize(
    ("method", "model", "args"),
    [
        ("fedmr", NORMALISED, {}),
        ("fedmr", Model("resnet18_gn"), {}),
        ("fedmr", SIMPLE, {"prototype_from": "global"}),
        ("fedmr", SIMPLE, {"inter_space": "l2"}),
        ("fedmr", SIMPLE, {"mu2": 0.0}),
        ("fedavg", SIMPLE, {}),
    ],
)
def test_nothing_is_said_where_the_network_normalises_or_the_term_is_another(
    method: str, model: Model, args: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert "without normalisation" not in told(method, model, args, caplog)


def test_a_resumed_run_is_not_warned_again(caplog: pytest.LogCaptureFixture) -> None:
    config = RunConfig("fedmr", {}, Data("digits", "p5c2"), SIMPLE, federation=Federation(1))
    with caplog.at_level("WARNING", logger="raffed"):
        warn(prepare_run(config), resumed=True)
    assert "without normalisation" not in caplog.text
