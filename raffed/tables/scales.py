"""The scales at which a table is reproduced: full, proxy or smoke."""

from __future__ import annotations

import functools
from dataclasses import replace

from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Model
from raffed.errors import UsageError

SCALES = {
    "smoke": "digits and a small MLP, 2 rounds: does every cell run",
    "proxy": (
        "the paper's methods and splits with less data, smaller networks and fewer rounds: are signs and "
        "orders the paper's"
    ),
    "full": "the paper's own settings: are the numbers the paper's",
}

STUDY_SCALES = {  # the scales of an item that is a study
    "smoke": "seconds of training: does the study run",
    "proxy": "less data, smaller networks or fewer epochs than the paper's: are signs and orders the paper's",
    "full": "the paper's own settings, where it gives them",
}


@functools.cache
def known_split(text: str) -> bool:
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    try:
        parse_split(text)
    except UsageError:
        return False
    return True


def smoke(config: RunConfig) -> RunConfig:
    """Return a tiny run of the same method and kind of split, on digits with a small MLP.

    It has at most ten clients and two rounds of one epoch. With stages, every stage is visited twice.
    """
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    federation, split = config.federation, parse_split(config.data.split, config.data.split_args).shrunk()
    rounds, held_out = 2 * split.stage_count, None if split.brings_tests else 0.2
    return replace(
        config,
        args={
            name: min(value, 1.0) if isinstance(value, int | float) and name.endswith("epochs") else value
            for name, value in config.args.items()
        },
        data=replace(
            config.data,
            dataset="digits",
            split=split,
            split_args={},
            transform="auto",
            transform_args={},
            local_test=held_out,
            samples=0,
        ),
        model=Model("mlp", {"hidden": [16]}),
        local=replace(
            config.local,
            batch_size=16,
            epochs=1,
            epochs_to=2 if config.local.epochs_to else 0,
            min_steps=1,
            warmup_rounds=0,
        ),
        federation=shortened(
            replace(federation, participation=max(federation.participation, 0.4), eval_every=1), rounds
        ),
        runtime=replace(config.runtime, execution="serial"),
    )


def shortened(federation: Federation, rounds: int, eval_every: int | None = None) -> Federation:
    """Return the same federation for fewer rounds. A survey is not longer than the run."""
    every = federation.eval_every if eval_every is None else eval_every
    return replace(federation, rounds=rounds, survey=min(federation.survey, rounds), eval_every=every)


def stages_of(split: str) -> int:
    """Return the number of stages M of a split; 1 without stages."""
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    return parse_split(split).stage_count if known_split(split) else 1
