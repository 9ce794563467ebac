"""What the probe of `raffed doctor` measures, and what it advises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.runtime.autosize import Choice, Probe, choose, measure, repeats
from raffed.runtime.setup import Setup, prepare_run

TINY = RunConfig(
    data=Data("digits", "iid:40", local_test=0.0),
    model=Model("mlp", {"hidden": [8]}),
    local=Local(batch_size=16, epochs=1),
    federation=Federation(rounds=3),
    runtime=Runtime(),
)


@pytest.fixture(scope="module")
def setup() -> Setup:
    return prepare_run(TINY)


def test_the_probe_measures_one_by_one_and_stacks_up_to_the_participants_and_changes_nothing(
    setup: Setup,
) -> None:
    before = setup.config, setup.partition.sha256()
    probe = measure(setup)
    assert list(probe.seconds) == [1, 8, 32]  # 40 participants
    assert all(0 < s < 10 for s in probe.seconds.values())
    assert probe.steps == TINY.local.steps(1437 // 40)
    assert probe.sent == 4 * (64 * 8 + 8 + 8 * 10 + 10)
    assert (setup.config, setup.partition.sha256()) == before


@pytest.mark.parametrize(
    ("seconds", "execution", "cohort"),
    [
        ({1: 1e-3}, "serial", 0),  # 120 clients of 3 steps: 0.4 s, Ray's start alone is longer
        ({1: 1.0}, "ray", 0),  # 360 s against 12 + 180
        ({1: 1.0, 8: 0.9}, "ray", 0),  # a tenth is noise: the reference execution is kept
        ({1: 1.0, 8: 0.5}, "ray", 8),  # 5 stacks on 2 actors, 3 in turn: 12 + 180 · 3/5 = 120 s
    ],
)
def test_what_ends_first_is_chosen(
    setup: Setup, seconds: dict[int, float], execution: str, cohort: int
) -> None:
    choice = choose(setup, Probe(seconds, 0, steps=3), cores=2)
    assert (choice.execution, choice.cohort) == (execution, cohort)


@pytest.mark.parametrize(
    ("runtime", "choice", "options"),
    [
        ({}, Choice("ray", 0, 5, 1.0, ""), "--execution ray --actors 5"),
        ({"clients_per_actor": 10}, Choice("ray", 0, 5, 1.0, ""), "--execution ray"),
        # All digits, or the option would name another share
        ({"gpu_fraction": 1 / 3}, Choice("ray", 0, 8, 1.0, ""), f"--execution ray --gpu-fraction {1 / 3}"),
        (
            {},
            Choice("serial", 8, 1, 1.0, "", "compiled"),
            "--execution serial --cohort 8 --convolutions compiled",
        ),
    ],
)
def test_the_advice_is_the_options_that_follow_it(
    runtime: dict[str, object], choice: Choice, options: str
) -> None:
    config = replace(TINY, runtime=replace(TINY.runtime, **runtime))  # type: ignore[arg-type]
    assert repeats(config, choice) == options
