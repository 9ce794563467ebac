"""Options of training in bfloat16: each acts, its neutral value does not, and a pause changes no bit.

The methods cover the kinds: one model, a correction that needs plain SGD, a private model, private layers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

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
Changes = Mapping[str, Value]


@dataclass(frozen=True)
class Option:
    """Settings that change a run, and the same settings at a value that changes nothing."""

    given: Changes
    neutral: Changes = field(default_factory=dict)


FLAT: Changes = {"local.schedule": "exponential", "local.schedule_args": {"gamma": 1.0}}
OPTIONS = {
    "schedule": Option({"local.schedule": "cosine", "local.schedule_by": "step"}, FLAT),
    "optimizer": Option({"local.optimizer": "adamw", "local.lr": 0.01}, {"local.optimizer": "sgd"}),
    "kept optimizer": Option({"local.optimizer": "adam", "local.lr": 0.01, "local.keep_optimizer": True}),
    "kept velocity": Option({"local.keep_optimizer": True}),
    "clip_value": Option({"local.clip_value": 0.01}, {"local.clip_value": 1e9}),
    "clip_norm": Option({"local.clip_norm": 0.05}, {"local.clip_norm": 1e9}),
    "label_smoothing": Option({"local.label_smoothing": 0.2}, {"local.label_smoothing": 0.0}),
    "selection": Option(
        {"federation.selection": "power_of_choice", "federation.participation": 0.5},
        {"federation.selection": "round_robin"},
    ),
    "mean": Option(
        {"federation.mean": "median"},
        {"federation.mean": "norm_bound", "federation.mean_args": {"bound": 1e6}},
    ),
}
KINDS = {
    "fedavg": set(OPTIONS),
    "scaffold": {"schedule", "clip_value", "label_smoothing"},
    "ditto": {"kept optimizer", "mean"},
    "fedrep": {"optimizer", "clip_norm"},
}
FAST = {("fedavg", "kept optimizer"), ("fedavg", "mean"), ("scaffold", "schedule")}
NEUTRAL_FAST = {("fedavg", "schedule"), ("fedavg", "mean")}


def pairs(fast: set[tuple[str, str]], neutral: bool) -> list[ParameterSet]:
    """Method and option; those that are not in `fast` are slow."""
    return [
        pytest.param(method, option, marks=[] if (method, option) in fast else pytest.mark.slow)
        for method, found in KINDS.items()
        for option in sorted(found)
        if OPTIONS[option].neutral or not neutral
    ]


def of(method: str, changes: Changes) -> RunConfig:
    return BASE.changed({"method": method, **changes})


@functools.cache
def plain(method: str) -> Mapping[str, str]:
    """The hashes of a method's run without any option."""
    return raffed.run(of(method, {})).hashes


@pytest.mark.parametrize(("method", "option"), pairs(FAST, neutral=False))
def test_an_option_acts_in_bf16_and_survives_a_pause(method: str, option: str, tmp_path: Path) -> None:
    config = of(method, OPTIONS[option].given)
    whole = raffed.run(config)
    assert whole.hashes["weights"] != plain(method)["weights"]
    raffed.run(config, tmp_path / "run", stop=lambda: True)
    assert raffed.resume(tmp_path / "run").hashes == whole.hashes


@pytest.mark.parametrize(("method", "option"), pairs(NEUTRAL_FAST, neutral=True))
def test_the_neutral_value_of_an_option_is_the_run_in_bf16_bit_for_bit(method: str, option: str) -> None:
    assert raffed.run(of(method, OPTIONS[option].neutral)).hashes == plain(method)


TOGETHER: Changes = {
    **OPTIONS["schedule"].given,
    **OPTIONS["kept optimizer"].given,
    **OPTIONS["clip_value"].given,
    **OPTIONS["label_smoothing"].given,
    **OPTIONS["selection"].given,
    **OPTIONS["mean"].given,
}


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
