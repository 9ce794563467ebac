"""The protocol of the zoo: one network, one budget, and one grid for every method.

A method is tried with SETTINGS settings, which are pairs of a learning rate and a point of its search space
(`raffed/tune_spaces`):

1. Three points of the space are used: the method's defaults, and two in which every argument has the next
   value of its grid, below and above. Where the default is at an end of its grid, these are the first and the
   last of the other values.
2. The points are crossed with the four RATES. A method with two points has six rates of LADDER, and one
   with nothing to search, such as FedAvg, has all twelve.

The rate is `local.lr`. A method that steps at a rate of its own has it in the argument that RATE_ARGUMENTS
names. Arguments that count epochs of a method's own passes are at most MOST_EPOCHS, because all others have
EPOCHS epochs in a round. How settings are chosen is said in `raffed.tables.search`.
"""

from __future__ import annotations

import functools
from ast import literal_eval
from collections.abc import Mapping, Sequence

from raffed.tune_spaces import has_space, load_space, values

from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime
from raffed.config.search_axis import RATE_ARGUMENTS
from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.methods import METHODS
from raffed.tables.search import RUNGS, Setting

SETTINGS, POINTS = RUNGS[0].settings, 3
RATES = (0.1, 0.033, 0.33, 0.01)
# Six steps to a factor of ten; every third is one of RATES, which come first
LADDER = (*RATES, 0.22, 0.047, 0.15, 0.068, 0.47, 0.022, 0.68, 0.015)
ROUNDS, EPOCHS, BATCH, SAMPLES = 100, 1.0, 32, 20_000
MOST_EPOCHS = 2.0
LOCAL = Local(lr=RATES[0], momentum=0.0, weight_decay=0.0, batch_size=BATCH, epochs=EPOCHS)


def config(method: str, dataset: str, split: str, model: Model, samples: int = SAMPLES) -> RunConfig:
    """Return the run of a method with its defaults, before a setting is chosen."""
    data = Data(dataset, split, transform="plain", local_test=0.2, samples=samples)
    runtime, numerics = Runtime(execution="serial"), Numerics(bits="portable")
    args = short_passes(method)
    return RunConfig(method, args, data, model, LOCAL, Federation(ROUNDS), runtime=runtime, numerics=numerics)


def short_passes(method: str) -> dict[str, Value]:
    """Return the arguments of a method that count epochs and are too large by default, cut to MOST_EPOCHS."""
    return {name: MOST_EPOCHS for name, value in _given(method).items() if _cut(name, value) != value}


@functools.cache
def _given(method: str) -> Mapping[str, Value]:
    """Return the defaults of a method's arguments, read from its source."""
    return {entry.name: literal_eval(str(entry.default)) for entry in METHODS[method].described().arguments}


def _cut(name: str, value: Value) -> Value:
    long = isinstance(value, float) and name.endswith("epochs") and value > MOST_EPOCHS
    return MOST_EPOCHS if long else value


def settings(run: RunConfig) -> list[Setting]:
    """Return the SETTINGS settings of a row, the same whenever and wherever they are asked for."""
    points = _points(run.method)
    argument, factor = RATE_ARGUMENTS.get(run.method, ("local.lr", 1.0))
    rates = LADDER[: SETTINGS // len(points)]
    return [{**point, argument: _scaled(rate, factor)} for rate in rates for point in points]


def _scaled(rate: float, factor: float) -> float:
    return rate if factor == 1.0 else round(rate * factor, 6)


def _points(method: str) -> list[Setting]:
    """Return at most three points of a method's search space, without its rate and with short passes."""
    if not has_space(method):
        raise UsageError(f"{method} has no search space; write tune_spaces/{method}.py")
    rate, _ = RATE_ARGUMENTS.get(method, ("", 1.0))
    space, usual = load_space(method), _given(method)
    axes = {
        name: _around([_cut(name, value) for value in values(space, name)], _cut(name, usual[name]))
        for name in space
        if name != rate
    }
    points = [{name: axis[number] for name, axis in axes.items()} for number in range(POINTS)]
    return [point for number, point in enumerate(points) if point not in points[:number]]


def _around(axis: Sequence[Value], usual: Value) -> tuple[Value, Value, Value]:
    """Return the usual value of an axis and the ones beside it, or the first and the last of the others if
    it is at an end. Where the axis lacks it, the one in the middle takes its place.
    """
    among = list(dict.fromkeys(axis))
    place = among.index(usual) if usual in among else len(among) // 2
    if 0 < place < len(among) - 1:
        return among[place], among[place - 1], among[place + 1]
    others = [value for value in among if value != among[place]]
    first = others[0] if len(others) > 1 else among[place]
    return among[place], first, others[-1] if others else first
