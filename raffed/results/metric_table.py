"""The table that METRICS is. The modules score_metrics and other_metrics fill it; import it from metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raffed.errors import UnknownNameError, UsageError
from raffed.results.metric import Direction, Level, Metric, Unit


class MetricTable:
    """All metrics that rows may have. `register` adds one at run time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Metric] = {}
        self._own: dict[tuple[str, str, str], Metric] = {}  # of users

    def __iter__(self) -> Iterator[Metric]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def register(self, metric: Metric) -> Metric:
        """Add a metric. Adding an equal one again changes nothing, so a module may be imported twice.

        Args:
            metric: The metric, with its unit, direction and meaning.

        Returns:
            `metric`, so that the name of a constant can be bound to it.

        Raises:
            UsageError: Another metric of this model and split has the name already.
        """
        known = self._known.get(metric.place) or self.find(*metric.place)
        if known is not None and known != metric:
            raise UsageError(
                f"metric {metric.name!r} of {metric.model} models on {metric.split} is there already "
                f"({known.meaning}); choose another name"
            )
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
        found = known.get((model, split, name))
        if found is not None:
            return None if found.numbered else found
        family = known.get((model, split, name.rstrip("0123456789")))
        if family is not None and family.numbered:
            return family
        wholes = (one for one in known.values() if one.named and one.place[:2] == (model, split))
        return next((one for one in wholes if name.startswith(f"{one.name}_")), None)

    def at(self, model: str, split: str, name: str) -> Metric:
        """Return the metric of rows with these words.

        Raises:
            UsageError: There is none. The message lists the nearest names.
        """
        found = self.find(model, split, name)
        if found is not None:
            return found
        names = [one.name for one in self if (one.model, one.split) == (model, split)]
        raise UnknownNameError(f"metric of {model} models on {split}", name, names)

    def named(self, name: str) -> list[Metric]:
        """Return the metrics of a name, for all models and splits."""
        return [one for one in self if one.name == name]

    def of_unit(self, unit: Unit) -> tuple[set[str], set[str]]:
        """Return the names of a unit: those that are whole words, and those that a number follows."""
        found = [one for one in self if one.unit == unit]
        return {one.name for one in found if not one.numbered}, {one.name for one in found if one.numbered}


METRICS = MetricTable()


def declare(
    name: str,
    where: str,
    unit: Unit,
    levels: Level | tuple[Level, ...],
    better: Direction,
    when: str,
    n: str,
    meaning: str,
    *,
    numbered: bool = False,
    named: bool = False,
) -> Metric:
    """Register one of raffed's own metrics, and return it. `where` is its model and its split."""
    model, split = where.split()
    several: tuple[Level, ...] = (levels,) if isinstance(levels, str) else levels
    return METRICS.register(
        Metric(name, model, split, unit, several, better, when, meaning, n, numbered=numbered, named=named)
    )
