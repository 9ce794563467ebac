"""Parts that several of the checker's tables share: where a number is printed, and training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from raffed import Claim, Data, Federation, Local, Model, RunConfig
from raffed.config.validation import Value
from raffed.tables.items import Cell, Item
from raffed.tables.search import setting_name

item = partial(Item, "checker")
GLOBAL, PERSONAL = "aggregation_accuracy", "personalization_accuracy"  # metrics of the csv
SGD = Local(lr=0.01, momentum=0.9, weight_decay=1e-5, batch_size=64, epochs=10)
HALVED = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}  # (x − 0.5) / 0.5 of three channels
SAME_RUN_OTHERWISE = ("local.lr", "local.momentum")  # in which plain SCAFFOLD's rows differ on purpose
MOST_MU = (0.001, 0.01, 0.1, 1.0)  # of FedProx, of which the best is printed
UNKNOWN_SEEDS = (
    "their seeds change the training, not the partition, so own seeds repeat on that partition, except "
    "in IID, which every seed divides anew"
)
PLAIN_SCAFFOLD = (
    "SCAFFOLD (lr 0.1) and SCAFFOLD (lr 0.01) are printed nowhere: their SCAFFOLD has momentum 0.9 inside, "
    "and the paper's has none; over many steps momentum is a rate ten times larger, so both rates are run "
    "without it, and without weight decay"
)

Place = Mapping[str, str]


class Printed(NamedTuple):
    """A column of a published table: the values of the csv's columns that all its rows share."""

    paper: str
    table: str
    dataset: str
    metric: str = GLOBAL

    def of(self, method: str) -> dict[str, str]:
        """Return where the number of a method is printed."""
        place = {"paper": self.paper, "table": self.table, "dataset": self.dataset}
        return {**place, "method": method, "metric": self.metric}


class TableRow(NamedTuple):
    """A row of a table: a method with its arguments, and what else differs from the other rows.

    Attributes:
        local: Fields of local training that differ, such as lr.
        settings: Arguments of which the best setting counts, one mapping each.
        printed: The method's name in the csv, if it is not the row's; "-" if nothing is printed.
        target: Whether the printed number is to be reproduced.
        measure: How the number is read, if it differs from the item's.
    """

    name: str
    method: str
    args: Mapping[str, Value] = {}
    local: Mapping[str, Value] = {}
    model: Mapping[str, Value] = {}
    settings: Sequence[Mapping[str, Value]] = ()
    printed: str = ""
    target: bool = True
    measure: str = ""
    weighting: Literal["", "samples", "clients"] = ""

    @property
    def print_name(self) -> str:
        return self.printed or self.name


def run_of(row: TableRow, base: RunConfig, setting: Mapping[str, Value] | None = None) -> RunConfig:
    """Return the run of a row, from the run that all rows of a column share."""
    federation = replace(base.federation, weighting=row.weighting) if row.weighting else base.federation
    run = replace(
        base,
        method=row.method,
        args={**row.args, **(setting or {})},
        federation=federation,
        model=replace(base.model, args={**base.model.args, **row.model}),
    )
    return run.changed({f"local.{name}": value for name, value in row.local.items()})


def cells(
    row: TableRow, column: str, base: RunConfig, sources: Sequence[Printed], target: bool = True
) -> list[Cell]:
    """Return the cell of a row in a column, once for each of the row's settings.

    Args:
        row: The row.
        column: Name of the column.
        base: The run that all rows of the column share.
        sources: Who prints the column; ours is judged by the first, and the others are its witnesses.
        target: Whether a number that is printed here is to be reproduced.
    """
    places = [source.of(row.print_name) for source in sources] if row.print_name != "-" else []
    held = row.target and (target or not places)
    told, others = (places[0], tuple(places[1:])) if places else ({}, ())

    def cell(config: RunConfig, setting: str = "") -> Cell:
        return Cell(row.name, column, config, told, row.measure, setting, held, others)

    if not row.settings:
        return [cell(run_of(row, base))]
    return [cell(run_of(row, base, setting), setting_name(setting)) for setting in row.settings]


def ahead(row: str, than: str, column: str, points: float) -> Claim:
    """Claim that a row is more than some points above another one in a column."""
    text = f"{row} is more than {points:g} points above {than} in {column}"
    return Claim(text, ((1.0, row, column), (-1.0, than, column)), minus=points)


def mus(values: Iterable[float], name: str = "mu") -> tuple[Mapping[str, Value], ...]:
    """Return one setting for each strength."""
    return tuple({name: value} for value in values)


def base(
    data: Data, model: Model, local: Local, rounds: int, participation: float = 1.0, measures: str = ""
) -> RunConfig:
    """Return the run of FedAvg that the rows of a column share."""
    return RunConfig("fedavg", {}, data, model, local, Federation(rounds, participation, measures=measures))
