"""Options of training in bfloat16: each acts, and a pause changes no bit.

The methods cover the kinds: one model, a correction that needs plain SGD, a private model, private layers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import raffed
from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime
from raffed.config.validation import Value

BASE = RunConfig(
    data=Data(split="dirichlet:4:0.5", samples=200),
    model=Model("mlp", {"hidden": [8]}),
    local=Local(lr=0.05, batch_size=32, epochs=1),
    federation=Federation(rounds=2),
    runtime=Runtime(execution="serial", checkpoint_every=1),
    numerics=Numerics(precision="bf16"),
)
OPTIONS: dict[str, dict[str, Value]] = {
    "schedule": {"local.schedule": "cosine", "local.schedule_by": "step"},
    "optimizer": {"local.optimizer": "adamw", "local.lr": 0.01},
    "kept optimizer": {"local.optimizer": "adam", "local.lr": 0.01, "local.keep_optimizer": True},
    "kept velocity": {"local.keep_optimizer": True},
    "clip_value": {"local.clip_value": 0.01},
    "clip_norm": {"local.clip_norm": 0.05},
    "label_smoothing": {"local.label_smoothing": 0.2},
    "selection": {"federation.selection": "power_of_choice", "federation.participation": 0.5},
    "mean": {"federation.mean": "median"},
}
TOGETHER = {
    name: value
    for option in ("schedule", "kept optimizer", "clip_value", "label_smoothing", "selection", "mean")
    for name, value in OPTIONS[option].items()
}
FAST = [("fedavg", "kept optimizer"), ("fedavg", "mean"), ("scaffold", "schedule")]
OTHERS = [("fedavg", option) for option in OPTIONS if ("fedavg", option) not in FAST]
OTHERS += [("scaffold", "clip_value"), ("ditto", "kept optimizer"), ("fedrep", "optimizer")]


def of(method: str, changes: dict[str, Value]) -> RunConfig:
    return BASE.changed({"method": method, **changes})


@pytest.mark.parametrize(
    ("method", "option"), [*FAST, *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)]
)
def test_an_option_acts_in_bf16_and_survives_a_pause(method: str, option: str, tmp_path: Path) -> None:
    config = of(method, OPTIONS[option])
    whole = raffed.run(config)
    assert whole.hashes["weights"] != raffed.run(of(method, {})).hashes["weights"]
    raffed.run(config, tmp_path / "run", stop=lambda: True)
    assert raffed.resume(tmp_path / "run").hashes == whole.hashes


def test_the_options_together_are_computed_in_bf16() -> None:
    low, single = (
        raffed.run(of("fedavg", {**TOGETHER, "numerics.precision": one})).hashes["weights"]
        for one in ("bf16", "fp32")
    )
    assert low != single


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_the_options_together_are_the_same_bits_on_ray_in_bf16(method: str) -> None:
    serial, ray = (
        raffed.run(of(method, {**TOGETHER, "runtime.execution": one})).hashes for one in ("serial", "ray")
    )
    assert ray == serial
