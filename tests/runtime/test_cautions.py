"""Lines that are printed before a run whose settings are valid but probably unintended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raffed import Data, Federation, Model, Numerics, RunConfig, Runtime
from raffed.runs.federation import warn
from raffed.runtime.setup import prepare_run

SIMPLE, NORMALISED = Model("mlp", {"hidden": [4]}), Model("resnet8")


def told(log: pytest.LogCaptureFixture, resumed: bool = False, **given: Any) -> str:
    base = RunConfig(
        data=Data("digits", "p5c2"),
        model=SIMPLE,
        federation=Federation(1),
        runtime=Runtime(execution="serial"),
    )
    with log.at_level("WARNING", logger="raffed"):
        warn(prepare_run(replace(base, **given)), resumed=resumed)
    return log.text


@pytest.mark.parametrize(
    ("method", "model", "args", "warned"),
    [
        ("fedmr", SIMPLE, {}, True),
        ("fedmr", SIMPLE, {"share": 0.5}, True),
        ("fedmr", NORMALISED, {}, False),
        ("fedmr", Model("resnet18_gn"), {}, False),
        ("fedmr", SIMPLE, {"prototype_from": "global"}, False),
        ("fedmr", SIMPLE, {"inter_space": "l2"}, False),
        ("fedmr", SIMPLE, {"mu2": 0.0}, False),
        ("fedavg", SIMPLE, {}, False),
    ],
)
def test_fedmr_s_local_prototypes_in_a_network_without_normalisation_are_warned_of(
    method: str, model: Model, args: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = told(caplog, method=method, model=model, args=args)
    assert found.count("can destroy training in a network without normalisation") == warned
    assert ("use prototype_from = global, or a network with BatchNorm" in found) == warned


def test_a_resumed_run_is_not_warned_again(caplog: pytest.LogCaptureFixture) -> None:
    assert "without normalisation" not in told(caplog, resumed=True, method="fedmr")


@pytest.mark.parametrize(
    ("gain", "in_hardware", "precision", "said"),
    [
        (0.1, False, "bf16", "has no instructions for it: a matrix product takes 10.0 times"),
        (0.5, True, "bf16", "is slower in it: a matrix product takes 2.0 times"),
        (0.5, None, "bf16", "is slower in it"),
        (1.8, True, "bf16", ""),
        (0.1, False, "fp32", ""),
    ],
)
def test_a_run_in_bf16_on_a_processor_that_is_slower_in_it_is_warned_of(
    gain: float,
    in_hardware: bool | None,
    precision: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("raffed.runs.federation.bf16_in_hardware", lambda: in_hardware)
    monkeypatch.setattr("raffed.runs.federation.bf16_gain", lambda: gain)
    found = told(caplog, numerics=Numerics(precision=precision))
    assert found.count("numerics.precision bf16") == bool(said)
    assert said in found
