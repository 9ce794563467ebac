"""Every method with every option of participation, means, attacks and local training: it is used, or the
method refuses it or says that it overrides it.

The neutral value is the run without the option, an option that is given changes the result, stacks give what
each client gives alone, and what a client keeps of its optimiser survives a pause. Every kind of method meets
every option, and every method meets one; most pairs are slow, and so is the matrix of whole runs, on Ray too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed import Data, Faults, Federation, Model, RunConfig, Runtime
from raffed.config.aggregation import MEANS
from raffed.config.training import Local
from raffed.core.method import Method
from raffed.core.training.session import effective, override_line, overrides, steps_of, with_optimizer
from raffed.errors import UsageError
from raffed.methods import METHODS, build_method
from raffed.runs.folder import run_config
from raffed.runtime.record_files import load_server
from raffed.runtime.run_method import method_of, with_mean
from tests.contract.test_cohort import agree_in_all, pair
from tests.golden.regenerate import WIRE
from tests.tiny import OF_EACH_KIND, PLAIN, Tiny, digits, leaves, network, over_methods, same_bits

BASE = RunConfig(
    data=Data(samples=300, local_test=0.2),
    model=Model("mlp", {"hidden": [4]}),
    local=Local(epochs=1, batch_size=8),
    federation=Federation(rounds=3, participation=0.6, eval_every=3),
    runtime=Runtime(execution="serial", checkpoint_every=1),
)
ROUND_OPTIONS: dict[str, RunConfig] = {
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
        for option in ROUND_OPTIONS
        for method in ("fedavg", "map", "fedadam", "fedrep")
        if option != "drawn epochs" or not sets_its_epochs(method)
    ],
)
def test_every_option_is_the_same_resumed_and_stacked_to_rounding(
    option: str, method: str, tmp_path: Path
) -> None:
    run, done = replace(ROUND_OPTIONS[option], method=method), list[int]()
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
@pytest.mark.parametrize("option", ROUND_OPTIONS)
def test_every_option_is_the_same_on_ray(option: str) -> None:
    run = ROUND_OPTIONS[option]
    ray = replace(run, runtime=replace(run.runtime, execution="ray", actors=2))
    assert raffed.run(ray).hashes == raffed.run(run).hashes


CALM = replace(PLAIN, lr=0.03)
OPTIONS: dict[str, dict[str, Any]] = {
    "step": {"schedule": "step", "schedule_args": {"every": 1, "gamma": 0.5}},
    "cosine by steps": {"schedule": "cosine", "schedule_by": "step"},
    "polynomial in a round": {"schedule": "polynomial", "schedule_by": "local_step"},
    "adam": {"optimizer": "adam"},
    "adamw": {"optimizer": "adamw", "keep_optimizer": True},
    "rmsprop": {"optimizer": "rmsprop"},
    "adagrad": {"optimizer": "adagrad", "keep_optimizer": True},
    "nesterov": {"optimizer_args": {"nesterov": True}},
    "kept velocity": {"keep_optimizer": True},
    "clip_norm": {"clip_norm": 0.05},
    "clip_value": {"clip_value": 0.01},
    "label_smoothing": {"label_smoothing": 0.2},
    "momentum": {"momentum": 0.5},
    "weight_decay": {"weight_decay": 0.1},
    "lr": {"lr": 0.01},
    "warmup": {"warmup_rounds": 2},
    "exponential by epochs": {
        "schedule": "exponential",
        "schedule_args": {"gamma": 0.7},
        "schedule_by": "epoch",
    },
    "multistep by steps": {
        "schedule": "multistep",
        "schedule_args": {"milestones": (1, 5), "gamma": 0.5},
        "schedule_by": "step",
    },
    "drawn epochs": {"epochs_to": 3},
    "drawn epochs, exponential in a round": {
        "epochs_to": 3,
        "schedule": "exponential",
        "schedule_args": {"gamma": 0.7},
        "schedule_by": "local_step",
    },
}
FAST = {
    "fedavg": set(OPTIONS),
    "scaffold": {"adam", "step", "kept velocity", "multistep by steps"},
    "pfedme": {"adamw", "clip_value"},
    "fednova": {"adam", "cosine by steps"},
    "fedrod": {"label_smoothing", "adamw"},
    "scamap": {"adamw"},
    "apfl": {"polynomial in a round"},
    "fedrep": {"adagrad"},
    "moon": {"drawn epochs, exponential in a round"},
}


def kind(name: str) -> tuple[object, ...]:
    """How a method trains: its passes, its solver, and the options that it overrides."""
    method = build_method(name)
    sgd = replace(CALM, momentum=0.5, weight_decay=0.1, schedule="cosine", schedule_by="step", clip_norm=0.1)
    sgd = replace(sgd, keep_optimizer=True, label_smoothing=0.2)
    adam = Local(optimizer="adamw", weight_decay=0.1)
    overridden = {one.name for local in (sgd, adam) for one in overrides(method, local)}
    return len(method.passes), type(method.solver), tuple(sorted(overridden))


KINDS: dict[tuple[object, ...], list[str]] = {}
for method_name in METHODS:
    KINDS.setdefault(kind(method_name), []).append(method_name)


def pairwise(options: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Every method, every option, and every option with every kind of method.

    The members of a kind take its options in turn, so that no pair is left to chance.
    """
    pairs = [
        (members[turn % len(members)], list(options)[turn % len(options)])
        for members in KINDS.values()
        for turn in range(max(len(members), len(options)))
    ]
    refused = {name for name in METHODS if sets_its_epochs(name)}
    return [(name, one) for name, one in pairs if not (name in refused and "epochs_to" in options[one])]


over_pairs = pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, option) for name, options in FAST.items() for option in sorted(options)),
        *(
            pytest.param(name, option, marks=pytest.mark.slow)
            for name, option in pairwise(OPTIONS)
            if option not in FAST.get(name, ())
        ),
    ],
)


def federation(name: str, local: Local, **args: Any) -> Tiny:
    return Tiny(with_optimizer(build_method(name, args), local), local=local)


def unused(name: str, given: Mapping[str, Any]) -> bool:
    """Whether the method says that it follows none of these settings of the run."""
    said = {one.name.removesuffix("_args") for one in overrides(build_method(name), replace(CALM, **given))}
    main = {one.removesuffix("_args").removesuffix("_by") for one in given} - {"keep_optimizer"}
    return bool(said) and (main or {"keep_optimizer"}) <= said


@over_pairs
def test_an_option_changes_the_result_or_is_overridden_alone_and_in_stacks(name: str, option: str) -> None:
    """Stacks after two rounds, so that kept states differ; client 3 comes for the first time."""
    given = OPTIONS[option]
    agree_in_all(*pair(federation(name, replace(CALM, **given)).run(2, [0, 1, 2])), 1e-7)
    usual = federation(name, CALM).run(3, [0, 1, 2, 3])
    changed = federation(name, replace(CALM, **given)).run(3, [0, 1, 2, 3])
    shared = same_bits(usual.server, changed.server)
    if unused(name, given):
        assert shared
        return
    kept = (one.client_states[0].slots if 0 in one.client_states else {} for one in (usual, changed))
    mine = [{slot: memory for slot, memory in slots.items() if slot != "optimizer"} for slots in kept]
    personal = [one.last[0].personal_state(one.method) for one in (usual, changed)]
    assert not (shared and same_bits(mine[0], mine[1]) and same_bits(personal[0], personal[1]))


FULL = ("fedavg", "scaffold")  # with every neutral value
NEUTRAL: dict[str, dict[str, Any]] = {
    "gamma 1 by steps": {"schedule": "exponential", "schedule_args": {"gamma": 1.0}, "schedule_by": "step"},
    "sgd": {"optimizer": "sgd", "optimizer_args": {"nesterov": False}},
    "no smoothing": {"label_smoothing": 0.0},
    "no clip": {"clip_value": 1e9, "clip_norm": 1e9},
}


@pytest.mark.parametrize(
    ("name", "option", "cohort"),
    [
        *((name, option, cohort) for name in FULL for option in NEUTRAL for cohort in (False, True)),
        *(
            pytest.param(name, option, bool(number % 2), marks=pytest.mark.slow)
            for number, (name, option) in enumerate(pairwise(NEUTRAL))
            if name not in FULL
        ),
    ],
)
def test_a_neutral_value_is_the_run_without_the_option_bit_for_bit(
    name: str, option: str, cohort: bool
) -> None:
    usual, neutral = federation(name, CALM), federation(name, replace(CALM, **NEUTRAL[option]))
    for one in (usual, neutral):
        one.cohort = cohort
        one.arrange()
        one.run(2, [0, 1, 2, 3])
    assert same_bits(usual.everything(), neutral.everything())


def test_a_client_that_is_not_drawn_keeps_the_state_of_its_optimiser() -> None:
    local = replace(CALM, optimizer="adam", keep_optimizer=True)
    tiny = federation("fedavg", local).run(2, [0, 1, 2, 3])
    before = [t.clone() for t in leaves(tiny.client_states[2])]
    tiny.step([0, 1])
    assert same_bits(leaves(tiny.client_states[2]), before)
    counts = [int(tiny.client_states[c].slots["optimizer"].phases["pass-0"].count) for c in (0, 2)]  # type: ignore[attr-defined]
    assert counts == [3 * 2, 2 * 2]  # 8 and 6 samples in batches of 4: two steps a round


EPOCHS = {"head_epochs": 3, "body_epochs": 2}


@pytest.mark.parametrize(
    ("method", "args", "local", "said"),
    [
        ("scaffold", {}, Local(optimizer="adamw"), "local.optimizer = adamw (it uses sgd) and local.weight_"),
        ("fedrep", EPOCHS, Local(epochs=7), "local.epochs = 7 (it uses 3 and 2)"),
        ("fedavg", {}, Local(optimizer="adam", epochs=7), ""),
    ],
)
def test_what_a_method_overrides_is_said_in_one_line(
    method: str, args: dict[str, Any], local: Local, said: str
) -> None:
    line = override_line(build_method(method, args), local)
    assert said in line
    assert bool(line) == bool(said)


@pytest.mark.parametrize("name", [members[0] for members in KINDS.values()])
def test_what_is_recorded_is_what_is_overridden_and_nothing_else(name: str) -> None:
    local = Local(optimizer="adamw", schedule="cosine", schedule_by="step", keep_optimizer=True)
    method = build_method(name)
    found = effective(method, local)
    shared = found["shared"]
    assert len(shared) == len(method.passes)
    overridden = found["overridden"]
    for one in overrides(method, local):
        assert overridden[one.name] == {"given": one.given, "used": one.used}
        assert any(table[one.name] == one.used or one.name == "optimizer" for table in shared)
    for field in ("lr", "weight_decay", "schedule", "clip_norm", "label_smoothing"):
        if field not in overridden:
            assert all(table[field] == getattr(local, field) for table in shared)


@pytest.mark.parametrize(
    ("method", "epochs", "steps"),
    [("fedavg", [3], 12), ("gldp", [10, 20], 120), ("perfedavg", [3], 6)],
)
def test_the_record_has_the_epochs_and_the_steps_of_shared_training(
    method: str, epochs: list[float], steps: int
) -> None:
    """32 samples are 4 batches of 8; a step of first-order Per-FedAvg takes two of them."""
    local, built = Local(epochs=3, batch_size=8), build_method(method)
    shared = effective(built, local)["shared"]
    assert [one["epochs"] for one in shared] == epochs
    assert steps_of(built, local, 32) == steps


def test_a_run_with_a_kept_optimiser_goes_on_after_a_pause_with_the_same_bits(tmp_path: Path) -> None:
    kept = {"keep_optimizer": True, "schedule": "cosine", "schedule_by": "step", "label_smoothing": 0.1}
    local = Local(lr=0.01, batch_size=10, epochs=1, optimizer="adamw", clip_value=0.5, **kept)
    config = replace(
        digits("iid:4", samples=80, local=local, federation=Federation(rounds=4, participation=0.5)),
        runtime=Runtime(execution="serial", checkpoint_every=1),
        numerics=raffed.Numerics(cohort=2),
    )
    whole = raffed.run(config, tmp_path / "whole")
    raffed.run(config, tmp_path / "paused", stop=iter([False, True, True]).__next__)
    gone_on = raffed.resume(tmp_path / "paused")
    assert gone_on.hashes["weights"] == whole.hashes["weights"]
    assert gone_on.hashes["vaults"] == whole.hashes["vaults"]
    about = json.loads((tmp_path / "whole" / "run.json").read_text())
    [used] = about["effective"]["shared"]
    assert (used["optimizer"], used["schedule"], used["keep_optimizer"]) == ("adamw", "cosine", True)
    assert about["effective"]["overridden"] == {}
