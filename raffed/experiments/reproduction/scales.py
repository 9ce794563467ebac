"""The scales at which a table is reproduced: full, proxy or smoke."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from raffed.config.run import Federation, Model, RunConfig
from raffed.data.partition import BRINGS_TESTS
from raffed.data.splits import OPTIONS, parse_split
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

SMALL_STAGES = (5, 4, 3)  # clients, classes and stages that digits has room for


@functools.cache
def known_split(text: str) -> bool:
    try:
        parse_split(text)
    except UsageError:
        return False
    return True


def smoke(config: RunConfig) -> RunConfig:
    """Return a tiny run of the same method and kind of split, on digits with a small MLP.

    It has at most ten clients and two rounds of one epoch. With stages, every stage is visited twice.
    """
    federation, split = config.federation, _small(config.data.split)
    rounds, held_out = 2 * stages_of(split), None if split.partition(":")[0] in BRINGS_TESTS else 0.2
    return replace(
        config,
        args={
            name: min(value, 1.0) if isinstance(value, int | float) and name.endswith("epochs") else value
            for name, value in config.args.items()
        },
        data=replace(config.data, dataset="digits", split=split, transform="auto", local_test=held_out),
        model=Model("mlp", {"hidden": [16]}),
        local=replace(config.local, batch_size=16, epochs=1, min_steps=1, warmup_rounds=0),
        federation=shortened(
            replace(federation, participation=max(federation.participation, 0.4), eval_every=1), rounds
        ),
        runtime=replace(config.runtime, execution="serial"),
    )


def shortened(federation: Federation, rounds: int, **changes: Any) -> Federation:
    """Return the same federation for fewer rounds. A survey is not longer than the run."""
    return replace(federation, rounds=rounds, survey=min(federation.survey, rounds), **changes)


def stages_of(split: str) -> int:
    """Return the number of stages M of a split; 1 without stages."""
    return parse_split(split).stages or 1 if known_split(split) else 1


def _small(split: str) -> str:
    """Return a split of the same kind for at most ten clients and ten classes."""
    scheme, _, rest = split.partition(":")
    if not rest:
        clients, dot, classes = split[1:].partition("c")
        return (
            f"p{min(int(clients), 10)}c{max(2, min(int(classes), 5))}"
            if dot and clients.isdigit()
            else "iid:10"
        )
    fields = rest.split(":")
    if scheme == "stages":
        sizes = (str(min(int(field), most)) for field, most in zip(fields, SMALL_STAGES, strict=False))
        return ":".join([scheme, *sizes, "if5", *(word for word in fields[4:] if word in OPTIONS)])
    limits = zip(fields, (10, 5, 5, 5), strict=False)
    numbers = [str(min(int(field), most)) if field.isdigit() else field for field, most in limits]
    return ":".join([scheme, *numbers])
