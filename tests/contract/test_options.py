"""Options of participation, means and attacks, for every method: effective or refused, and neutral where
they say so.

The fast part looks at every method in memory. The slow part runs the whole matrix, also on Ray and stacked.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Data, Faults, Federation, Local, Model, RunConfig, Runtime
from raffed.config.aggregation import MEANS
from raffed.core.method import Method
from raffed.errors import UsageError
from raffed.methods import METHODS, build_method
from raffed.runs.folder import run_config
from raffed.runtime.record_files import load_server
from raffed.runtime.run_method import method_of, with_mean
from tests.golden.regenerate import WIRE
from tests.tiny import OF_EACH_KIND, PLAIN, Tiny, network, over_methods, same_bits

BASE = RunConfig(
    data=Data(samples=300, local_test=0.2),
    model=Model("mlp", {"hidden": [4]}),
    local=Local(epochs=1, batch_size=8),
    federation=Federation(rounds=3, participation=0.6, eval_every=3),
    runtime=Runtime(execution="serial", checkpoint_every=1),
)
OPTIONS: dict[str, RunConfig] = {
    **{f"mean {name}": replace(BASE, federation=replace(BASE.federation, mean=name)) for name in MEANS},
    **{
        f"selection {name}": replace(BASE, federation=replace(BASE.federation, selection=name))
        for name in ("size", "power_of_choice", "round_robin")
    },
    "selection fixed": replace(
        BASE,
        federation=Federation(
            rounds=3, eval_every=3, selection="fixed", selection_args={"clients": "0,2,7; 1-4"}
        ),
    ),
    "drawn epochs": replace(BASE, local=replace(BASE.local, epochs=1, epochs_to=3)),
    **{
        f"attack {name}": replace(BASE, faults=Faults(attack=name, attackers=0.3))
        for name in ("sign_flip", "scaling", "gaussian", "label_flip", "backdoor")
    },
}


def messages_of(name: str) -> set[str]:
    """What a method's clients send beside n, weights and statistics, as the golden wire table lists it."""
    part = WIRE.read_text().split(f"\n{name}  (")[1].split("\n\n")[0]
    up = part.split("\n  up ")[1].split("\n  client keeps")[0]
    return {line.split()[0] for line in up.splitlines()[1:] if line.strip()} - {"n", "w", "b"}


SELDOM = ("ccvr", "feddbe")  # their messages go up in one round only, which the wire table does not show


def with_rule(name: str, rule: str, **args: float) -> Method:
    return with_mean(build_method(name, {}), Federation(mean=rule, mean_args=args))  # type: ignore[arg-type]


def admitting() -> list[str]:
    return [name for name in METHODS if not build_method(name, {}).why_no_robust_mean]


def sets_its_epochs(name: str) -> bool:
    """Whether its arguments set the epochs of every pass, so that the option of drawn epochs is refused."""
    return all(one.epochs is not None for one in build_method(name, {}).passes)


@over_methods
def test_a_method_that_admits_a_robust_mean_sends_nothing_beside_the_weights(name: str) -> None:
    """Nothing then reaches the server past the rule; a method that does send something else refuses."""
    method = build_method(name, {})
    if messages_of(name) or name in SELDOM or method.mean.fixed or method.server.each:
        with pytest.raises(UsageError, match="does not admit it, because"):
            with_rule(name, "median")
    else:
        assert bool(method.why_no_robust_mean) == (method.split.personal == "all")


@pytest.mark.parametrize(
    "name",
    [one if one in OF_EACH_KIND else pytest.param(one, marks=pytest.mark.slow) for one in admitting()],
)
def test_a_robust_mean_that_keeps_everything_is_the_mean_and_the_median_is_not(name: str) -> None:
    uniform = with_mean(build_method(name, {}), Federation(weighting="clients"))
    local = replace(PLAIN, momentum=0.0)
    rounds = [
        Tiny(method, net=network(norm=True), local=local).run(1, (0, 1, 3))
        for method in (uniform, with_rule(name, "trimmed", beta=0.0), with_rule(name, "median"))
    ]
    assert same_bits(rounds[0].server, rounds[1].server)
    assert not same_bits(rounds[0].server, rounds[2].server)


def final(path: Path) -> torch.Tensor:
    return load_server(path / "final.safetensors", method_of(run_config(path))).w.flat


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "method"),
    [
        (option, method)
        for option in OPTIONS
        for method in ("fedavg", "map", "fedadam", "fedrep")
        if option != "drawn epochs" or not sets_its_epochs(method)
    ],
)
def test_every_option_is_the_same_resumed_and_stacked_to_rounding(
    option: str, method: str, tmp_path: Path
) -> None:
    run, done = replace(OPTIONS[option], method=method), list[int]()
    raffed.run(run, tmp_path / "cut", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 2)
    whole = raffed.run(run, tmp_path / "whole")
    assert raffed.resume(tmp_path / "cut").hashes == whole.hashes
    assert whole.hashes["weights"] != raffed.run(replace(BASE, method=method)).hashes["weights"]
    raffed.run(replace(run, numerics=replace(run.numerics, cohort=3)), tmp_path / "stacked")
    if "krum" not in option and option != "selection power_of_choice":  # both choose by numbers that round
        torch.testing.assert_close(
            final(tmp_path / "stacked"), final(tmp_path / "whole"), atol=2e-2, rtol=2e-2
        )


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_the_same_on_ray(option: str) -> None:
    run = OPTIONS[option]
    ray = replace(run, runtime=replace(run.runtime, execution="ray", actors=2))
    assert raffed.run(ray).hashes == raffed.run(run).hashes
