"""Make metric rows: rounds, surveys, strengths, ε. METRICS (results/metrics.py) says what they mean."""

from __future__ import annotations

import logging
import math
import statistics
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from raffed.config.sections import Privacy
from raffed.core.aggregation.exact_sums import PointSum, plain_mean, plain_sum
from raffed.core.measures.scores import ScoreCounts
from raffed.core.measures.term_strength import ALL
from raffed.core.messages import Broadcast, ServerState
from raffed.core.params import State
from raffed.core.server import unaddressed
from raffed.own.user_code import place_of
from raffed.results import metrics as scores
from raffed.results.metric import Metric, Row
from raffed.runtime.api import Backend, Report, RoundOrder, SurveyedClient
from raffed.runtime.setup import Setup

# Make the rows of the measure `term_strength`: of each participant, and the medians over participants.


def strength_rows(number: int, reports: Sequence[Report]) -> list[Row]:
    """Return the rows of an evaluated round; none if nobody measured.

    The common row is the median and leaves out NaN. A mean would be decided by a client whose cross-entropy
    is all but 0 after training, as with a single class, where a ratio can be 10^10.

    Args:
        number: Number of rounds done.
        reports: What the participants reported.
    """
    rows = []
    for model, term in dict.fromkeys(key for r in reports for key in r.scores.strengths):
        metric, part = scores.TERM_STRENGTH[model], "" if term == ALL else term
        strengths = ((r.client, r.scores.strengths.get((model, term))) for r in reports)
        measured = [(client, s) for client, s in strengths if s is not None]
        rows += [metric.row(number, s.value, part=part, client=client, n=s.n) for client, s in measured]
        known = [s.value for _, s in measured if not math.isnan(s.value)]
        middle = statistics.median(known) if known else math.nan
        rows.append(metric.row(number, middle, part=part, n=len(known)))
    return rows


# Terms of a user's own method that change nothing, because their value never has a gradient.


log = logging.getLogger(__name__)
ROUNDS: Final = 2  # a term may have nothing to do in the first round, before there is anything to remember


class IdleTerms:
    """Warns once of the terms that had no gradient at any client in the first rounds of this process.

    Args:
        kinds: The classes of the method's ingredients.
    """

    def __init__(self, kinds: Sequence[type]) -> None:
        self._kinds = kinds
        self._idle: set[str] | None = None  # without gradient in every round so far
        self._rounds = 0

    def note(self, reports: Sequence[Report], last: bool) -> None:
        """Note a round, and warn if it is time.

        Args:
            reports: What its clients report.
            last: Whether it is the run's last round.
        """
        if self._rounds >= ROUNDS or not reports:
            return
        here = set.intersection(*(set(report.idle) for report in reports))
        self._idle = here if self._idle is None else self._idle & here
        self._rounds = ROUNDS if last else self._rounds + 1
        if self._rounds < ROUNDS or not self._idle:
            return
        for kind in (ingredient for ingredient in self._kinds if ingredient.__name__ in self._idle):
            log.warning(
                "%s: %s has had no gradient at any client so far, so it has changed nothing: compute its "
                "value from f with torch and do not detach it, or return 0 where it adds nothing",
                place_of(getattr(kind, "loss", kind)),
                kind.__name__,
            )


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
    for model in scores.ACCURACY:
        rows += _means(number, model, [score for _, score in _own(reports, model)])
    rows += _each_and_mean(number, scores.PRIVATE_ACCURACY, _own(reports, "private"))
    return rows if test is None else rows + _global_rows(number, test)


def _own(clients: Iterable[Report | SurveyedClient], model: str) -> Own:
    """Return those clients whose model was scored, with the score."""
    return [(r.client, r.scores.models[model]) for r in clients if model in r.scores.models]


def _training_row(number: int, reports: Sequence[Report], seconds: float) -> Row:
    n = sum(r.n for r in reports)
    loss = plain_sum(r.loss * r.n for r in reports) / n if n else math.nan  # NaN if nobody trained
    up, down = sum(r.bytes_up for r in reports), sum(r.bytes_down for r in reports)
    return scores.TRAINING_LOSS.row(number, loss, n=n, bytes_up=up, bytes_down=down, seconds=seconds)


def _participant_rows(number: int, r: Report) -> list[Row]:
    """Return the rows of one participant."""
    up, down = r.bytes_up, r.bytes_down
    rows = [
        scores.CLIENT_LOSS.row(
            number, r.loss, client=r.client, n=r.n, bytes_up=up, bytes_down=down, seconds=r.seconds
        )
    ]
    for model, metric in scores.ACCURACY.items():
        if model in r.scores.models:
            counts = r.scores.models[model]
            rows.append(metric.row(number, counts.accuracy, client=r.client, n=counts.n))
    if "personal" in r.scores.models:
        score = r.scores.models["personal"]
        rows.append(scores.PERSONAL_OBSERVED.row(number, score.accuracy_observed, client=r.client, n=score.n))
    for name, (value, count) in r.scores.extra.items():
        rows.append(scores.METRICS.at("local", "train", name).row(number, value, client=r.client, n=count))
    for stage, counts in enumerate(r.scores.stages):
        metric = scores.STAGE_ACCURACY
        rows.append(metric.row(number, counts.accuracy, client=r.client, number=stage, n=counts.n))
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
        rows.append(scores.METRICS.at("local", "train", name).row(number, mean, n=len(known)))
    return rows


def _means(number: int, model: str, counts: Sequence[ScoreCounts]) -> list[Row]:
    """Return unweighted means over participants, each with its own score."""
    if not counts:
        return []
    n = len(counts)
    return [
        scores.ACCURACY[model].row(number, plain_sum(score.accuracy for score in counts) / n, n=n),
        scores.OBSERVED[model].row(number, plain_sum(score.accuracy_observed for score in counts) / n, n=n),
        scores.F1[model].row(number, plain_sum(score.macro_f1 for score in counts) / n, n=n),
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
    validated = [(r.client, r.scores.validation) for r in reports if r.scores.validation is not None]
    rows = _each_and_mean(number, scores.PERSONAL_VALIDATION, validated)
    if val is not None:
        rows.append(scores.VALIDATION_ACCURACY.row(number, val.accuracy, n=val.n))
        rows.append(scores.VALIDATION_LOSS.row(number, val.mean_loss, n=val.n))
    return rows


def _each_and_mean(number: int, metric: Metric, pairs: Own) -> list[Row]:
    """Return each client's accuracy and their unweighted mean."""
    rows = [metric.row(number, score.accuracy, client=client, n=score.n) for client, score in pairs]
    if pairs:
        rows.append(metric.row(number, plain_mean([score.accuracy for _, score in pairs]), n=len(pairs)))
    return rows


# The survey after a round: score the models of all clients, also of those that did not take part.


class ClientSurvey:
    """Scores all clients of a run between rounds.

    `initial` is the model with all its layers, and `norms` names its parameters of BatchNorm.
    """

    def __init__(self, setup: Setup, backend: Backend, initial: State, norms: tuple[str, ...] = ()) -> None:
        self._setup, self._backend, self._initial, self._norms = setup, backend, initial, norms

    def rows(
        self, server: ServerState, versions: Mapping[int, int], last: RoundOrder, whole: Broadcast | None
    ) -> list[Row]:
        """Return the rows about all clients.

        Args:
            server: The server's state after the round.
            versions: Client → number of rounds done when it last took part.
            last: The order of the round.
            whole: The server's model, or None if the method has no global model.
        """
        clients = tuple(self._setup.data.trainable)
        kept = tuple(versions.get(client, 0) for client in clients)
        order, number = RoundOrder.alone(server.broadcast(), clients, kept, measure=True), server.round
        oracle = not self._setup.method.has_global
        surveyed = self._backend.survey(order, self.oracle(server, versions, last) if oracle else whole)
        metric = scores.ORACLE_BETWEEN if oracle else scores.GLOBAL_BETWEEN
        rows = _each_and_mean(number, metric, _own(surveyed, "global"))
        rows += _each_and_mean(number, scores.PERSONAL_BETWEEN, _own(surveyed, "personal"))
        return [*rows, scores.NEVER_SELECTED.row(number, float(kept.count(0)), n=len(kept))]

    def unseen_rows(self, server: ServerState, whole: Broadcast | None) -> list[Row]:
        """Return the rows about the clients that never train: each is scored as one that comes new.

        Args:
            server: The server's state after the round.
            whole: The server's model, or None if the method has no global model.
        """
        clients = self._setup.data.unseen
        if not clients:
            return []
        order = RoundOrder.alone(server.broadcast(), clients, (0,) * len(clients), measure=True)
        surveyed, rows = self._backend.survey(order, whole), list[Row]()
        for model, metric in scores.UNSEEN.items():
            rows += _each_and_mean(server.round, metric, _own(surveyed, model))
        return rows

    def oracle(self, server: ServerState, versions: Mapping[int, int], last: RoundOrder) -> Broadcast | None:
        """Return the server's layers, completed by the mean of the layers that the last participants keep.

        Only the simulator can form this model (docs/papers/gldp.md §7). It is None if nothing is shared, if
        buffers stay with the clients, if no head is used, or if no upload was counted. Where clients keep no
        layers, it is the mean of their models.
        """
        split, personal = self._setup.method.split, self._setup.method.personal
        headless = personal is not None and personal.predicts
        if split.personal == "all" or split.buffers == "local" or headless or not any(last.weights):
            return None
        if split.personal == "none":
            return unaddressed(server.broadcast())
        kept, weights = tuple(versions[client] for client in last.participants), last.weights
        if self._setup.config.clock.asynchronous:  # the weights of stale uploads do not add up to 1
            weights = tuple(weight / math.fsum(weights) for weight in weights)
        total = PointSum()
        for part in self._backend.own_layers(replace(last, versions=kept, weights=weights)):
            total.merge(part)
        layers = total.value(split.own(self._initial.w, self._norms))
        return unaddressed(server.replace(w=server.w.joined(layers, self._initial.w.names)).broadcast())


# Compute (ε, δ) of a run's noise by Rényi differential privacy, with opacus (extra `privacy`).


ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 80, 96, 128, 192, 256, 512, 1024)

# Warning filters belong to the process, so two runs must not change them at the same time
_filters = threading.Lock()


def epsilon(noise: float, rounds: int, delta: float, rate: float = 1.0) -> float:
    """Return ε at `delta` after `rounds` Gaussian mechanisms.

    ε = min over orders a > 1 of RDP(a) + log((a − 1)/a) − (log δ + log a)/(a − 1). At rate 1, RDP(a) = rounds
    · a / (2σ²).

    Args:
        noise: Noise multiplier σ.
        rounds: Number of mechanisms.
        delta: δ.
        rate: Rate of the Poisson samples, in (0, 1]; 1 means that everyone takes part.
    """
    return epsilon_of(noise, {rate: rounds}, delta)


def epsilon_of(noise: float, rounds: Mapping[float, int], delta: float) -> float:
    """Return ε at `delta` after Gaussian mechanisms at several rates, whose RDP(a) are added up.

    Args:
        noise: Noise multiplier σ.
        rounds: Rate of the Poisson samples, in (0, 1] → number of mechanisms.
        delta: δ.
    """
    from opacus.accountants.analysis import rdp

    counted = {rate: steps for rate, steps in rounds.items() if steps}
    if not counted:
        return 0.0
    parts = [
        rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=ORDERS)
        for rate, steps in counted.items()
    ]
    spent = sum(parts[1:], start=parts[0])
    # At the first or last order ε is slightly larger than necessary, but valid
    with (
        _filters,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
        epsilon_spent, _ = rdp.get_privacy_spent(orders=ORDERS, rdp=spent, delta=delta)
    return float(epsilon_spent)


class Accountant:
    """Count how often each client took part."""

    def __init__(self, privacy: Privacy) -> None:
        self._privacy, self._visits, self._rounds = privacy, Counter[int](), Counter[float]()

    def add(self, clients: Iterable[int], rate: float) -> None:
        """Count a round with these clients, whether or not their uploads counted.

        Args:
            clients: The participants.
            rate: Fraction of the clients that is drawn. It differs between the rounds of a run and those of
                its fork.
        """
        self._visits.update(clients)
        self._rounds[rate] += 1

    def rows(self, number: int) -> list[Row]:
        """Return the rows after `number` rounds.

        `epsilon` holds for the client that took part most often, even if it is known who takes part.
        `epsilon_poisson`, for noise at the server, is the figure that is usually reported: it assumes that
        every client takes part in every round with probability round(Q·N) / N, independently and in secret.
        Runs draw exactly round(Q·N) clients, for which it is not a bound.
        """
        privacy = self._privacy
        if not privacy.noise:
            return []
        worst = max(self._visits.values(), default=0)
        rows = [scores.EPSILON_SPENT.row(number, epsilon(privacy.noise, worst, privacy.delta), n=worst)]
        if privacy.noise_at == "server":
            spent = epsilon_of(privacy.noise, self._rounds, privacy.delta)
            rows.append(scores.EPSILON_POISSON.row(number, spent, n=number))
        return rows
