"""The early end of a run, and its best model. Both are decided on the clients' validation parts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from raffed.config.federation import ValidationCurve, read_rule
from raffed.core.messages import ServerState
from raffed.results.metric import Metric, Row
from raffed.results.metrics import PERSONAL_VALIDATION, VALIDATION_ACCURACY, VALIDATION_LOSS
from raffed.results.runfile import Best

BEST = "best.safetensors"  # the server's state with the best model, in a checkpoint and in a finished run
METRICS: dict[str, Metric] = {
    "val.accuracy": VALIDATION_ACCURACY,
    "val.loss": VALIDATION_LOSS,
    "val.personal": PERSONAL_VALIDATION,
}


@dataclass(frozen=True)
class BestModel:
    """The server's state after the round with the best value on the validation parts."""

    server: ServerState
    measure: str
    value: float

    def described(self) -> Best:
        """Return what run.json records about it."""
        return {"round": self.server.round, "measure": self.measure, "value": self.value}


class Validation:
    """The validation measure of a run: when it ends the run, and which round was the best.

    Args:
        stop_when: `federation.stop_when`.
        validates: Whether the clients have validation parts.
        has_global: Whether the method has a global model. Only such a model is kept as the best.
        earlier: The rows of the rounds before, if the run is resumed.
        best: The best model of the rounds before; None if there is none, or if none was kept.
    """

    def __init__(
        self,
        stop_when: str,
        validates: bool,
        has_global: bool,
        earlier: pa.Table | None = None,
        best: BestModel | None = None,
    ) -> None:
        self.rule = read_rule(stop_when)
        measured = "val.accuracy" if has_global else "val.personal"
        self.measure = measured if self.rule is None else self.rule.measure
        self._keeps = validates and has_global
        self.curve = ValidationCurve(
            self.measure, () if earlier is None else values_in(earlier, self.measure)
        )
        known = self.curve.best()
        self.best = best
        self._complete = known is None or (best is not None and best.server.round == known[0])
        if known is not None and best is not None and self._complete:
            # A fork may decide by another measure than its run, under which this was the best model too
            self.best = replace(best, measure=self.measure, value=known[1])

    def add(self, round: int, rows: Sequence[Row], server: ServerState) -> None:
        """Take note of a round's rows. `server` is the server's state after the round."""
        metric = METRICS[self.measure]
        found = [row.value for row in rows if _is(row, metric)]
        if not found:
            return
        self.curve.values[round] = found[0]
        if self._keeps and self.curve.best() == (round, found[0]):
            self.best, self._complete = BestModel(server, self.measure, found[0]), True

    @property
    def kept(self) -> BestModel | None:
        """The best model of all rounds so far.

        It is None for a fork whose best round was not the best one for its run, which decided by another
        measure.
        """
        return self.best if self._complete else None

    def reason_to_end(self, round: int) -> str:
        """Return why the run ends after this round; empty if it goes on."""
        return "" if self.rule is None else self.rule.reason(self.curve, round)


def _is(row: Row, metric: Metric) -> bool:
    place = (row.model, row.split, row.metric) == (metric.model, metric.split, metric.name)
    return place and row.client is None and row.class_ is None


def values_in(rows: pa.Table, measure: str) -> list[tuple[int, float]]:
    """Return (rounds done, value) of a measure in a run's rows."""
    metric = METRICS[measure]
    kept = pc.and_(pc.equal(rows["model"], metric.model), pc.equal(rows["split"], metric.split))
    kept = pc.and_(kept, pc.equal(rows["metric"], metric.name))
    kept = pc.and_(kept, pc.and_(pc.is_null(rows["client"]), pc.is_null(rows["class"])))
    found = rows.filter(kept)
    return list(zip(found["round"].to_pylist(), found["value"].to_pylist(), strict=True))
