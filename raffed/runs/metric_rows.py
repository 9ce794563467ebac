"""Make metric rows of rounds and surveys. METRICS (results/metrics.py) says what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from raffed.core.aggregation.exact_sums import plain_sum
from raffed.core.measures.scores import ScoreCounts
from raffed.results import metrics as scores
from raffed.results.metric import Metric
from raffed.results.metrics import CLIENT_LOSS, METRICS, NEVER_SELECTED, TRAINING_LOSS, UNSEEN
from raffed.results.row import Row
from raffed.runs.strength_rows import strength_rows
from raffed.runtime.reports import Report, SurveyedClient

ACCURACY = {
    "global": scores.DOWNLOADED_ACCURACY,
    "local": scores.LOCAL_ACCURACY,
    "personal": scores.PERSONAL_ACCURACY,
}
OBSERVED = {
    "global": scores.DOWNLOADED_OBSERVED,
    "local": scores.LOCAL_OBSERVED,
    "personal": scores.PERSONAL_OBSERVED,
}
F1 = {"global": scores.DOWNLOADED_F1, "local": scores.LOCAL_F1, "personal": scores.PERSONAL_F1}
Own = Sequence[tuple[int, ScoreCounts]]  # clients, each with its score


def round_rows(number: int, reports: list[Report], test: ScoreCounts | None, seconds: float) -> list[Row]:
    """Return the rows of a round.

    Args:
        number: Number of rounds done.
        reports: What the participants reported.
        test: Scores of the global model on the global test set, or None if it was not scored.
        seconds: Wall time of the round.
    """
    rows = [_training_row(number, reports, seconds)]
    for report in reports:
        rows += _participant_rows(number, report)
    rows += _extra_means(number, reports) + strength_rows(number, reports)
    for model in ACCURACY:
        rows += _means(number, model, [found for _, found in _own(reports, model)])
    rows += _each_and_mean(number, scores.PRIVATE_ACCURACY, _own(reports, "private"))
    return rows if test is None else rows + _global_rows(number, test)


def _own(clients: Iterable[Report | SurveyedClient], model: str) -> Own:
    """Return those clients whose model was scored, with the score."""
    return [(one.client, one.scores.models[model]) for one in clients if model in one.scores.models]


def _training_row(number: int, reports: Sequence[Report], seconds: float) -> Row:
    n = sum(r.n for r in reports)
    loss = plain_sum(r.loss * r.n for r in reports) / n if n else math.nan  # NaN if nobody trained
    up, down = sum(r.bytes_up for r in reports), sum(r.bytes_down for r in reports)
    return TRAINING_LOSS.row(number, loss, n=n, bytes_up=up, bytes_down=down, seconds=seconds)


def _participant_rows(number: int, r: Report) -> list[Row]:
    """Return the rows of one participant."""
    up, down = r.bytes_up, r.bytes_down
    rows = [
        CLIENT_LOSS.row(
            number, r.loss, client=r.client, n=r.n, bytes_up=up, bytes_down=down, seconds=r.seconds
        )
    ]
    for model, metric in ACCURACY.items():
        if model in r.scores.models:
            found = r.scores.models[model]
            rows.append(metric.row(number, found.accuracy, client=r.client, n=found.n))
    if "personal" in r.scores.models:
        own = r.scores.models["personal"]
        rows.append(OBSERVED["personal"].row(number, own.accuracy_observed, client=r.client, n=own.n))
    for name, (value, count) in r.scores.extra.items():
        rows.append(METRICS.at("local", "train", name).row(number, value, client=r.client, n=count))
    for stage, found in enumerate(r.scores.stages):
        metric = scores.STAGE_ACCURACY
        rows.append(metric.row(number, found.accuracy, client=r.client, number=stage, n=found.n))
    return rows


def _extra_means(number: int, reports: Sequence[Report]) -> list[Row]:
    """Return the means of additional measures, unweighted, over the participants for which they are
    numbers.
    """
    rows = []
    for name in dict.fromkeys(name for r in reports for name in r.scores.extra):
        values = [r.scores.extra[name].value for r in reports if name in r.scores.extra]
        known = [value for value in values if not math.isnan(value)]
        mean = plain_sum(known) / len(known) if known else math.nan
        rows.append(METRICS.at("local", "train", name).row(number, mean, n=len(known)))
    return rows


def _means(number: int, model: str, found: Sequence[ScoreCounts]) -> list[Row]:
    """Return unweighted means over participants, each with its own score."""
    if not found:
        return []
    n = len(found)
    return [
        ACCURACY[model].row(number, plain_sum(one.accuracy for one in found) / n, n=n),
        OBSERVED[model].row(number, plain_sum(one.accuracy_observed for one in found) / n, n=n),
        F1[model].row(number, plain_sum(one.macro_f1 for one in found) / n, n=n),
    ]


def _global_rows(number: int, test: ScoreCounts) -> list[Row]:
    return [
        scores.TEST_ACCURACY.row(number, test.accuracy, n=test.n),
        scores.TEST_LOSS.row(number, test.mean_loss, n=test.n),
        scores.TEST_F1.row(number, test.macro_f1, n=test.n),
        *(
            scores.TEST_ACCURACY.row(number, share, class_=label, n=count)
            for label, (share, count) in enumerate(test.by_class)
        ),
    ]


def validation_rows(number: int, reports: list[Report], val: ScoreCounts | None) -> list[Row]:
    """Return the rows of the split `val`.

    They are the personal models, each on its own part, their mean, and the global model on all parts.
    """
    own = [(r.client, r.scores.validation) for r in reports if r.scores.validation is not None]
    rows = _each_and_mean(number, scores.PERSONAL_VALIDATION, own)
    if val is not None:
        rows.append(scores.VALIDATION_ACCURACY.row(number, val.accuracy, n=val.n))
        rows.append(scores.VALIDATION_LOSS.row(number, val.mean_loss, n=val.n))
    return rows


def survey_rows(
    number: int, standings: Iterable[SurveyedClient], oracle: bool, visited: Sequence[bool]
) -> list[Row]:
    """Return the rows of every client between rounds, and the means.

    `oracle` says that nobody holds the global model. `visited` says for each client whether it has taken part
    in a round so far.
    """
    found = list(standings)
    whole = scores.ORACLE_BETWEEN if oracle else scores.GLOBAL_BETWEEN
    rows = _each_and_mean(number, whole, _own(found, "global"))
    rows += _each_and_mean(number, scores.PERSONAL_BETWEEN, _own(found, "personal"))
    never = float(sum(not one for one in visited))
    return [*rows, NEVER_SELECTED.row(number, never, n=len(visited))]


def unseen_rows(number: int, standings: Iterable[SurveyedClient]) -> list[Row]:
    """Return the rows of the clients that never train, and the means."""
    found = list(standings)
    return [
        row for model, metric in UNSEEN.items() for row in _each_and_mean(number, metric, _own(found, model))
    ]


def _each_and_mean(number: int, metric: Metric, own: Own) -> list[Row]:
    """Return each client's accuracy and their unweighted mean."""
    rows = [metric.row(number, score.accuracy, client=client, n=score.n) for client, score in own]
    if own:
        rows.append(metric.row(number, sum(score.accuracy for _, score in own) / len(own), n=len(own)))
    return rows
