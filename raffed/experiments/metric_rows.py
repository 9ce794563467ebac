"""Make metric rows of rounds and surveys (results/schema.py lists them)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from raffed.results.schema import Row
from raffed.runtime.reports import Report, ScoreCounts, SurveyedClient

MODELS = ("global", "local", "personal")


def round_rows(number: int, reports: list[Report], test: ScoreCounts | None, seconds: float) -> list[Row]:
    """Return the rows of a round.

    `number` is the number of rounds done. `test` holds the scores of the global model on the global test set.
    """
    n = sum(r.n for r in reports)
    loss = sum(r.loss * r.n for r in reports) / n if n else math.nan  # NaN if nobody trained
    up, down = sum(r.bytes_up for r in reports), sum(r.bytes_down for r in reports)
    rows = [Row(number, "global", "train", "loss", loss, n=n, bytes_up=up, bytes_down=down, seconds=seconds)]
    for r in reports:
        rows.append(
            Row(
                number,
                "local",
                "train",
                "loss",
                r.loss,
                client=r.client,
                n=r.n,
                bytes_up=r.bytes_up,
                bytes_down=r.bytes_down,
                seconds=r.seconds,
            )
        )
        for model in MODELS:
            if model in r.scores:
                tally = r.scores[model]
                rows.append(
                    Row(number, model, "local_test", "accuracy", tally.accuracy, client=r.client, n=tally.n)
                )
        if "personal" in r.scores:
            own = r.scores["personal"]
            rows.append(
                Row(
                    number,
                    "personal",
                    "local_test",
                    "accuracy_observed",
                    own.accuracy_observed,
                    r.client,
                    n=own.n,
                )
            )
        for name, (value, count) in r.extra.items():
            rows.append(Row(number, "local", "train", name, value, client=r.client, n=count))
        for stage, tally in enumerate(r.stages):
            rows.append(
                Row(
                    number,
                    "personal",
                    "local_test",
                    f"accuracy_stage{stage}",
                    tally.accuracy,
                    r.client,
                    n=tally.n,
                )
            )
    rows += _extra_means(number, reports)
    for model in MODELS:
        rows += _means(number, model, [r.scores[model] for r in reports if model in r.scores])
    private = [(r.client, r.scores["private"]) for r in reports if "private" in r.scores]
    rows += _each_and_mean(number, "personal", "local_test", "accuracy_private", private)
    return rows if test is None else rows + _global_rows(number, test)


def _extra_means(number: int, reports: Sequence[Report]) -> list[Row]:
    """Return the means of additional measures, unweighted, over the participants for which they are
    numbers.
    """
    rows = []
    for name in dict.fromkeys(name for r in reports for name in r.extra):
        known = [
            r.extra[name].value for r in reports if name in r.extra and not math.isnan(r.extra[name].value)
        ]
        rows.append(
            Row(number, "local", "train", name, sum(known) / len(known) if known else math.nan, n=len(known))
        )
    return rows


def _means(number: int, model: str, tallies: Sequence[ScoreCounts]) -> list[Row]:
    """Return unweighted means over participants, each with its own score."""
    if not tallies:
        return []
    names, n = ("accuracy", "accuracy_observed", "macro_f1"), len(tallies)  # properties of ScoreCounts
    return [
        Row(number, model, "local_test", name, sum(getattr(tally, name) for tally in tallies) / n, n=n)
        for name in names
    ]


def _global_rows(number: int, test: ScoreCounts) -> list[Row]:
    values = {"accuracy": test.accuracy, "loss": test.loss / test.n, "macro_f1": test.macro_f1}
    rows = [Row(number, "global", "test", name, value, n=test.n) for name, value in values.items()]
    for label, (correct, count) in enumerate(zip(test.correct, test.total, strict=True)):
        share = correct / count if count else math.nan
        rows.append(Row(number, "global", "test", "accuracy", share, class_=label, n=count))
    return rows


def validation_rows(number: int, reports: list[Report], val: ScoreCounts | None) -> list[Row]:
    """Return the rows of the split `val`.

    They are the personal models, each on its own part, their mean, and the global model on all parts.
    """
    own = [(r.client, r.validation) for r in reports if r.validation is not None]
    rows = _each_and_mean(number, "personal", "val", "accuracy", own)
    if val is not None:
        rows.append(Row(number, "global", "val", "accuracy", val.accuracy, n=val.n))
        rows.append(Row(number, "global", "val", "loss", val.loss / val.n, n=val.n))
    return rows


def survey_rows(
    number: int, standings: Iterable[SurveyedClient], oracle: bool, visited: Sequence[bool]
) -> list[Row]:
    """Return the rows of every client between rounds, and the means.

    `oracle` says that nobody holds the global model. `visited` says for each client whether it has taken part
    in a round so far.
    """
    found = list(standings)
    names = {"global": "accuracy_oracle" if oracle else "accuracy_between", "personal": "accuracy_between"}
    rows = []
    for model, name in names.items():
        own = [(one.client, one.scores[model]) for one in found if model in one.scores]
        rows += _each_and_mean(number, model, "local_test", name, own)
    never = float(sum(not one for one in visited))
    return [*rows, Row(number, "personal", "local_test", "never_selected", never, n=len(visited))]


def _each_and_mean(
    number: int, model: str, split: str, metric: str, own: Sequence[tuple[int, ScoreCounts]]
) -> list[Row]:
    """Return each client's accuracy and their unweighted mean."""
    rows = [
        Row(number, model, split, metric, tally.accuracy, client=client, n=tally.n) for client, tally in own
    ]
    mean = (
        [Row(number, model, split, metric, sum(tally.accuracy for _, tally in own) / len(own), n=len(own))]
        if own
        else []
    )
    return rows + mean
