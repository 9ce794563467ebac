"""The zoo: all methods of raffed, equally tuned, on one network and the same splits.

`fashion-mnist` has the methods that make a global model, and `fashion-mnist-personal` those whose clients
have models of their own. Items with a longer name have other splits: a long tail of classes, and clients with
incomplete classes. Every item lists every method of `METHODS`. Which of them are its rows is asked of the
methods when the item is planned (rows.py), because that needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raffed import Model, RunConfig
from raffed.methods import METHODS
from raffed.tables.items import Cell, Item, shortened
from raffed.tables.search import RUNGS, RowSearch

from .protocol import EPOCHS, POINTS, RATES, ROUNDS, SAMPLES, config, settings
from .rows import global_measure, global_remark, not_global, not_personal, personal_measure, personal_remark

ZOO = "zoo"  # the paper of all these items
MLP = Model("mlp", {"hidden": [200, 200]})
FASHION, CIFAR = "fashion-mnist", "cifar10"
MAIN = {"P10C2": "p10c2", "Dirichlet 0.1": "dirichlet:10:0.1"}
INCOMPLETE = {"incomplete": "incomplete:10", "shards": "shards:10:2"}
# The rows that are run first, because the field cites and compares with them most. All make a global model
MOST_CITED = (
    *("fedavg", "fedprox", "scaffold", "fednova", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "perfedavg"),
    *("moon", "feddf", "feddyn", "ccvr", "fedrod", "fedlc", "feddc", "fedntd", "fedbabu", "fedrs", "fedsam"),
    *("fedexp", "fedmr", "creff"),
)
LONG_TAIL = {"IF 10": "longtail:10:0.5:10", "IF 50": "longtail:10:0.5:50"}

# Of trials of a row in a column: a trial that goes on is not begun again
TRIAL_ROUNDS = round(
    RowSearch.tuning_seeds
    * sum(
        rung.settings * (rung.share - before) * ROUNDS
        for rung, before in zip(RUNGS, (0.0, *(rung.share for rung in RUNGS)), strict=False)
    )
)


@dataclass(frozen=True)
class TableKind:
    """Global or personal models: what is measured, what chooses a setting, and which methods are rows."""

    suffix: str
    models: str
    measure: str
    search: RowSearch


GLOBAL = TableKind(
    "", "global models", "accuracy_mean10", RowSearch(settings, not_global, global_remark, global_measure)
)
PERSONAL = TableKind(
    "-personal",
    "personal models",
    "personal_mean10",
    RowSearch(settings, not_personal, personal_remark, personal_measure, select="personal"),
)
NOTE = (
    f"every method has {RUNGS[0].settings} settings: {len(RATES)} rates crossed with {POINTS} points of its "
    f"own space, or as many rates in all if it has nothing to search. Each is tried with "
    f"{GLOBAL.search.tuning_seeds} seeds and scored on a fifth of the clients' training data: "
    f"{', then '.join(f'{rung.settings} settings for {rung.share * ROUNDS:.0f} rounds' for rung in RUNGS)}, "
    f"which are {TRIAL_ROUNDS:,} rounds of trials for every row and split. The best one runs again with "
    f"{GLOBAL.search.seeds} fresh seeds, each with a split of its own, and all training data. {SAMPLES:,} "
    f"images of the training set, of which each client holds out a fifth as its local test part; {ROUNDS} "
    f"rounds, {EPOCHS:g} epoch of plain SGD, rates {', '.join(map(str, sorted(RATES)))}"
)


def tables(name: str, title: str, dataset: str, splits: Mapping[str, str], model: Model) -> tuple[Item, ...]:
    """Return two tables of the zoo with the same cells: a row for every method, a column for every split."""
    cells = tuple(
        Cell(METHODS[method].title, column, config(method, dataset, split, model), {})
        for method in dict.fromkeys((*MOST_CITED, *METHODS))
        for column, split in splits.items()
    )
    return tuple(
        Item(
            ZOO,
            f"{name}{kind.suffix}",
            f"{title}, {kind.models}",
            kind.measure,
            cells,
            note=NOTE,
            proxy=proxy,
            search=kind.search,
        )
        for kind in (GLOBAL, PERSONAL)
    )


def proxy(full: RunConfig) -> RunConfig:
    """Return a run with a quarter of the images and of the rounds."""
    return replace(
        full,
        data=replace(full.data, samples=SAMPLES // 4),
        federation=shortened(full.federation, ROUNDS // 4),
    )


ITEMS = (
    *tables(FASHION, "All methods on Fashion-MNIST", FASHION, MAIN, MLP),
    *tables(CIFAR, "All methods on CIFAR-10", CIFAR, MAIN, Model("lenet")),
    *tables(f"{FASHION}-incomplete", "Clients with incomplete classes", FASHION, INCOMPLETE, MLP),
    *tables(f"{FASHION}-long-tail", "A long tail of classes", FASHION, LONG_TAIL, MLP),
)
