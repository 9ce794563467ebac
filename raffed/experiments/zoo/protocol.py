"""The protocol of the zoo: one network, one budget, and as many settings for every method.

A method is tried with TRIALS settings. They are pairs of a learning rate and a point of its search space
(`raffed/tune_spaces`), made by a fixed rule:

1. At most TRIALS points of the space are used, evenly spaced in the order of the grid. The first of them is
   the method's defaults, if the grid has them.
2. The points and the three RATES are gone through in turn, so that no pair comes twice. Every rate is used
   equally often.
3. A method with nothing to search, such as FedAvg, has all TRIALS rates of LADDER.

The rate is `local.lr`. A method that steps at a rate of its own has it in the argument that RATE_ARGUMENTS
names. Arguments that count epochs of a method's own passes are at most MOST_EPOCHS, because all others have
EPOCHS epochs in a round.
"""

from __future__ import annotations

import functools
import math
from ast import literal_eval
from collections.abc import Mapping, Sequence

from raffed.config.run import Data, Federation, Model, RunConfig, Runtime
from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.experiments.reproduction.search import Setting
from raffed.methods import METHODS
from raffed.tune_spaces import GridPoint, has_space, load_space, points

TRIALS = 6
RATES = (0.1, 0.03, 0.3)
LADDER = (0.1, 0.03, 0.3, 0.05, 0.2, 0.01)
ROUNDS, EPOCHS, BATCH, SAMPLES = 40, 1.0, 32, 20_000
MOST_EPOCHS = 2.0
RATE_ARGUMENTS: Mapping[str, tuple[str, float]] = {  # of methods that have their own: argument, and a factor
    "perfedavg": ("outer_lr", 1.0),
    "pfedme": ("outer_lr", 1 / 15),  # its step is outer_lr times λ, which is 15 by default
}
LOCAL = Local(lr=RATES[0], momentum=0.0, weight_decay=0.0, batch_size=BATCH, epochs=EPOCHS)


def config(method: str, dataset: str, split: str, model: Model, samples: int = SAMPLES) -> RunConfig:
    """Return the run of a method with its defaults, before a setting is chosen."""
    data = Data(dataset, split, transform="plain", local_test=0.2, samples=samples)
    runtime = Runtime(execution="serial")
    return RunConfig(method, short_passes(method), data, model, LOCAL, Federation(ROUNDS), runtime=runtime)


def short_passes(method: str) -> dict[str, Value]:
    """Return the arguments of a method that count epochs and are too large by default, cut to MOST_EPOCHS."""
    return {name: MOST_EPOCHS for name, value in _given(method).items() if _cut(name, value) != value}


@functools.cache
def _given(method: str) -> Mapping[str, Value]:
    """Return the defaults of a method's arguments, read from its source."""
    return {one.name: literal_eval(str(one.default)) for one in METHODS[method].described().arguments}


def _cut(name: str, value: Value) -> Value:
    long = isinstance(value, float) and name.endswith("epochs") and value > MOST_EPOCHS
    return MOST_EPOCHS if long else value


def settings(run: RunConfig) -> list[Setting]:
    """Return the TRIALS settings of a row, the same whenever and wherever they are asked for.

    A method that steps at rates of its own and has few points may have fewer.
    """
    method = run.method
    own = _points(method)
    argument, factor = RATE_ARGUMENTS.get(method, ("local.lr", 1.0))
    if len(own) == 1:
        return [{**own[0], argument: _scaled(rate, factor)} for rate in LADDER[:TRIALS]]
    pairs = paired(_spread(own, _defaults(method)), RATES, TRIALS)
    return [{**point, argument: _scaled(rate, factor)} for point, rate in pairs]


def _scaled(rate: float, factor: float) -> float:
    return rate if factor == 1.0 else round(rate * factor, 6)


def _points(method: str) -> list[GridPoint]:
    """Return the points of a method's search space, without its rate and with short passes."""
    if not has_space(method):
        raise UsageError(f"{method} has no search space; write tune_spaces/{method}.py")
    rate, _ = RATE_ARGUMENTS.get(method, ("", 1.0))
    space = {name: among for name, among in load_space(method).items() if name != rate}
    found: list[GridPoint] = []
    for point in points(space):
        short = {name: _cut(name, value) for name, value in point.items()}
        if short not in found:
            found.append(short)
    return found


def _defaults(method: str) -> Setting:
    return {name: _cut(name, value) for name, value in _given(method).items()}


def _spread(own: Sequence[GridPoint], defaults: Setting) -> list[GridPoint]:
    """Return at most TRIALS points, evenly spaced, with the defaults first if they are among all points."""
    count = min(len(own), TRIALS)
    usual = next((one for one in own if all(defaults.get(key) == value for key, value in one.items())), None)
    rest = [one for one in own if one is not usual]
    wanted = count if usual is None else count - 1
    even = [rest[round(i * (len(rest) - 1) / max(wanted - 1, 1))] for i in range(wanted)]
    return even if usual is None else [usual, *even]


def paired(own: Sequence[GridPoint], rates: Sequence[float], count: int) -> list[tuple[GridPoint, float]]:
    """Return `count` pairs of a point and a rate. No pair comes twice, and every rate equally often."""
    turn = math.lcm(len(own), len(rates))
    return [
        (own[i % len(own)], rates[(i + i // turn) % len(rates)])
        for i in range(min(count, len(own) * len(rates)))
    ]
