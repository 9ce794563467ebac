"""What a metric is: its unit, whose rows it has, when they exist, what they mean; and a table of metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from raffed.errors import UnknownNameError, UsageError

# One row of a run's metric files, before the writer adds the run's own columns.


class Row(NamedTuple):
    """One measurement in the units of SCHEMA. The writer adds run_id, method, dataset, partition and seed.

    Code that measures makes rows with `Metric.row` (results/metric.py), which knows the names.

    >>> Row(round=3, model="global", split="test", metric="accuracy", value=0.9, n=1000)  # doctest: +ELLIPSIS
    Row(round=3, model='global', split='test', metric='accuracy', value=0.9, client=None, ..., n=1000, ...)
    """

    round: int
    model: str
    split: str
    metric: str
    value: float
    client: int | None = None
    stage: int | None = None
    class_: int | None = None
    n: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    seconds: float | None = None


MODELS = ("global", "personal", "local")
SPLITS = ("test", "local_test", "train", "val")
Level = Literal["global", "class", "client", "mean"]
Direction = Literal["higher", "lower", "neither"]


class Unit(NamedTuple):
    """The unit of a metric's values, and the range in which they lie. NaN stands for a value that is unknown.

    >>> fraction = Unit("fraction", 0.0, 1.0)
    >>> fraction.holds(0.5), fraction.holds(50.0), fraction.holds(float("nan"))
    (True, False, True)
    """

    name: str
    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """Return whether a metric of this unit can have the value."""
        return math.isnan(value) or self.low <= value <= self.high


@dataclass(frozen=True)
class Metric:
    """One metric of one kind of model on one kind of samples.

    Attributes:
        name: The word in the column `metric`. A numbered metric is the beginning of its words.
        model: Whose weights are measured: global, personal or local.
        split: On which samples: test, local_test, train or val.
        unit: Unit and range of the values.
        levels: Which rows there are. "global": one row of the server. "class": one row for each class.
            "client": one row for each client. "mean": one row, the unweighted mean over clients.
        better: Which direction is an improvement.
        when: In which rounds of which runs the rows exist.
        meaning: What is measured.
        n: What the column `n` counts.
        numbered: Whether a number follows the name, as in accuracy_stage0.
        named: Whether the name of a part may follow the name, as in term_strength_proximal.
    """

    name: str
    model: str
    split: str
    unit: Unit
    levels: tuple[Level, ...]
    better: Direction
    when: str
    meaning: str
    n: str
    numbered: bool = False
    named: bool = False

    @property
    def place(self) -> tuple[str, str, str]:
        """The columns model, split and metric, which no two metrics share."""
        return self.model, self.split, self.name

    @property
    def title(self) -> str:
        """The name as lists show it, such as accuracy_stageN."""
        return f"{self.name}N" if self.numbered else f"{self.name}[_NAME]" if self.named else self.name

    def row(
        self,
        round: int,
        value: float,
        *,
        n: int | None = None,
        client: int | None = None,
        class_: int | None = None,
        number: int | None = None,
        part: str = "",
        bytes_up: int | None = None,
        bytes_down: int | None = None,
        seconds: float | None = None,
    ) -> Row:
        """Return a row of this metric.

        Args:
            round: Number of rounds done.
            value: The measurement in the metric's unit.
            n: What `Metric.n` says.
            client: Number of the client, or None if the row is the server's or a mean.
            class_: The class, or None for all classes together.
            number: The number of a numbered metric.
            part: The name of a part, for a metric that has named parts; "" for the whole.
            bytes_up: Bytes sent from clients to the server.
            bytes_down: Bytes sent from the server to clients.
            seconds: Wall time in s.

        Raises:
            UsageError: This metric has no such rows.
        """
        level = "client" if client is not None else "class" if class_ is not None else None
        if (level not in self.levels) if level else not {"global", "mean"} & {*self.levels}:
            raise UsageError(f"metric {self.name} of {self.model} models has no {level or 'common'} rows")
        if self.numbered != (number is not None):
            raise UsageError(f"metric {self.name}: only a numbered metric takes a number, and it needs one")
        if part and not self.named:
            raise UsageError(f"metric {self.name} has no named parts, but {part!r} was given; leave it out")
        name = f"{self.name}{number}" if self.numbered else f"{self.name}_{part}" if part else self.name
        return Row(
            round, self.model, self.split, name, value, client, None, class_, n, bytes_up, bytes_down, seconds
        )


class MetricTable:
    """All metrics that rows may have. `register` adds one at run time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Metric] = {}
        self._own: dict[tuple[str, str, str], Metric] = {}  # of users

    def __iter__(self) -> Iterator[Metric]:
        return iter(list(self._known.values()))

    def register(self, metric: Metric) -> Metric:
        """Add one of raffed's own metrics, and return it, so that a constant can be bound to it."""
        self._known[metric.place] = metric
        return metric

    def admit(self, metric: Metric) -> Metric:
        """Let rows of a metric of the user's own be written. It replaces an earlier one of its name, as a
        notebook may have, and is not listed.

        Returns:
            `metric`.

        Raises:
            UsageError: One of raffed's own metrics has the name.
        """
        known = self._found(self._known, *metric.place)
        if known is not None:
            raise UsageError(
                f"metric {metric.name!r} of {metric.model} models on {metric.split} is one of raffed's own "
                f"({known.meaning}); choose another name"
            )
        self._own[metric.place] = metric
        return metric

    def find(self, model: str, split: str, name: str) -> Metric | None:
        """Return the metric of rows with these words, or None if there is none."""
        return self._found(self._known, model, split, name) or self._own.get((model, split, name))

    @staticmethod
    def _found(
        known: Mapping[tuple[str, str, str], Metric], model: str, split: str, name: str
    ) -> Metric | None:
        exact = known.get((model, split, name))
        if exact is not None:
            return None if exact.numbered else exact
        family = known.get((model, split, name.rstrip("0123456789")))
        if family is not None and family.numbered:
            return family
        wholes = (whole for whole in known.values() if whole.named and whole.place[:2] == (model, split))
        return next((whole for whole in wholes if name.startswith(f"{whole.name}_")), None)

    def at(self, model: str, split: str, name: str) -> Metric:
        """Return the metric of rows with these words.

        Raises:
            UsageError: There is none. The message lists the nearest names.
        """
        metric = self.find(model, split, name)
        if metric is not None:
            return metric
        names = [other.name for other in self if (other.model, other.split) == (model, split)]
        raise UnknownNameError(f"metric of {model} models on {split}", name, names)

    def named(self, name: str) -> list[Metric]:
        """Return the metrics of a name, for all models and splits."""
        return [metric for metric in self if metric.name == name]
