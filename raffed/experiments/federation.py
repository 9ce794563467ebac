"""The rounds of one run: draw participants, have them trained, aggregate, measure, record. Knows no Ray."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from raffed.core import seeds
from raffed.core.aggregation.accumulator import PartialSum, UploadAccumulator
from raffed.core.aggregation.clip_and_noise import add_noise
from raffed.core.aggregation.exact_sums import PointSum
from raffed.core.context import Received, ServerContext
from raffed.core.divergence import explained
from raffed.core.messages import Broadcast, ServerState
from raffed.core.params import Params, State
from raffed.core.round import evaluated_broadcast, server_init, server_round
from raffed.errors import UsageError
from raffed.experiments.events import RoundEvent
from raffed.experiments.final_measures import after_last, before_last
from raffed.experiments.folder import RunFolder
from raffed.experiments.folder_place import of_folder
from raffed.experiments.metric_rows import round_rows, survey_rows, validation_rows
from raffed.experiments.participation import RoundParticipants, RoundPlan
from raffed.experiments.privacy_accountant import Accountant
from raffed.experiments.server_data import CleanScore, labelled_images, public_images
from raffed.results.schema import Row
from raffed.runtime.api import Asked, Backend, RoundOrder
from raffed.runtime.reports import Report, ScoreCounts
from raffed.runtime.setup import Setup
from raffed.runtime.torch_settings import check_unchanged
from raffed.runtime.worker import make_network, make_spec

log = logging.getLogger(__name__)


def weights_sha256(state: State) -> str:
    """SHA-256 over the named weights and buffers, float32, in the model's order."""
    total = hashlib.sha256()
    for params in (state.w, state.b):
        for name, tensor in params.tensors.items():
            total.update(name.encode())
            total.update(tensor.detach().cpu().numpy().tobytes())
    return total.hexdigest()


@dataclass(frozen=True)
class _Training:
    """A round on its way. began: time.perf_counter() when it was asked for."""

    drawn: RoundPlan
    job: RoundOrder
    began: float
    asked: Asked[tuple[PartialSum, list[Report]]]


@dataclass(frozen=True)
class _Scoring:
    """A round whose uploads are in the server. whole: the global model, None where there is none; test, val:
    of it, sent: of the weights that are broadcast, where a server's rule wants others scored.
    """

    training: _Training
    reports: list[Report]
    whole: Broadcast | None
    test: Asked[ScoreCounts] | None
    val: Asked[ScoreCounts] | None
    sent: Asked[ScoreCounts] | None


def _nobody() -> tuple[PartialSum, list[Report]]:
    return PartialSum(), []


class RoundLoop:
    """One run from its first to its last round. `versions`: client → rounds done when it last took part.

    A round's seconds are those since it was begun, or since the round before it was scored, if that was
    later.
    """

    def __init__(self, setup: Setup, runtime: Backend, folder: RunFolder) -> None:
        self.setup, self.runtime, self.folder = setup, runtime, folder
        self.method = setup.method
        network = make_network(setup)
        self.spec = make_spec(setup, network.feature_dim)
        self._initial = network.initial
        wanted = self.method.server.required_data()
        self._network = network
        self._public, self._labelled = (
            public_images(setup, wanted.images),
            labelled_images(setup, wanted.labelled),
        )
        self._clean = None if self._public is None else CleanScore(setup, network, self._public)
        self.server: ServerState = folder.resumed or server_init(self.method, network.initial, self.spec)
        self.round_hashes: list[str] = list(folder.round_hashes)
        self.versions: dict[int, int] = {}
        self._last = 0.0  # when a round was last scored
        self._ahead: RoundPlan | None = None  # of the round to come, made while the one before is trained
        self._accountant = Accountant(setup.config.privacy, setup.config.federation.participation)
        for number in range(self.server.round):
            self._took_part(RoundParticipants.of(setup, number).trained, number)
        # The last server whose round has its rows, and the versions of then: with any other, a failure would
        # leave a gap in them.
        self._safe = self.server, dict(self.versions)

    def _took_part(self, clients: tuple[int, ...], round: int) -> None:
        self.versions.update(dict.fromkeys(clients, round + 1))
        self._accountant.add(clients)

    @property
    def state(self) -> State:
        return State(self.server.w, self.server.b)

    def rounds(self, stop: Callable[[], bool] = lambda: False) -> Iterator[RoundEvent]:
        """Run what is left, an event a round. `stop()` is asked after every round; what is done is always
        recorded.
        """
        config = self.setup.config
        try:
            for event in self.next(config.federation.rounds - self.server.round):
                yield event
                done, halt = (
                    self.server.round,
                    stop(),
                )  # asked once: a signal between two answers would skip the checkpoint
                if halt or done % config.runtime.checkpoint_every == 0 or done == config.federation.rounds:
                    self.folder.checkpoint(self.server, self.round_hashes, self.versions)
                if halt:
                    break  # what trains ahead is dropped: it has changed nothing that a checkpoint holds
        except BaseException:
            server, versions = self._safe
            try:
                self.folder.rescue(server, self.round_hashes[: server.round], versions)
            except Exception as second:  # noqa: BLE001 (the first error is the one to tell)
                level = logging.INFO if of_folder(second) else logging.WARNING  # then the first says so
                log.log(level, "the rounds since the last checkpoint could not be kept: %s", second)
            raise

    def next(self, count: int) -> Iterator[RoundEvent]:
        """The next `count` rounds, an event each, without checkpoints.

        Actors train a round while the one before is scored and recorded; not beside a survey, which looks at
        what clients keep.
        """
        ahead: _Training | None = None
        for left in reversed(range(count)):
            ended = self._trained(ahead or self._begun())
            ahead = None if not left or ended.training.drawn.surveyed else self._begun()
            yield self._recorded(ended, ahead is not None)

    def step(self) -> RoundEvent:
        """One round, with nothing beside it."""
        [event] = self.next(1)
        return event

    def _begun(self) -> _Training:
        """The next round's training, asked for."""
        number, ahead = self.server.round, self._ahead
        drawn = (
            ahead
            if ahead is not None and ahead.number == number
            else RoundPlan.of(self.setup, self.method, number)
        )
        job = self._job(drawn)
        asked = self.runtime.train(job) if job.participants else _nobody
        return _Training(drawn, job, time.perf_counter(), asked)

    def _trained(self, training: _Training) -> _Scoring:
        """The server after a round, and its scores, asked for."""
        job, drawn = training.job, training.drawn
        partial, reports = training.asked()
        check_unchanged()
        self._took_part(job.participants, job.round)
        self.server = self._aggregated(partial, drawn.roster, drawn.sizes, max(job.weights, default=0.0))
        whole = evaluated_broadcast(self.method, self.server) if self.method.has_global else None
        judged = whole if drawn.measure else None
        test = self.runtime.evaluate(judged) if judged is not None else None
        val = (
            self.runtime.evaluate(judged, "val") if judged is not None and self.setup.partition.val else None
        )
        apart = judged is not None and judged.w is not self.server.w
        sent = self.runtime.evaluate(self.server.broadcast()) if apart else None
        return _Scoring(training, reports, whole, test, val, sent)

    def _recorded(self, scoring: _Scoring, ahead: bool) -> RoundEvent:
        """The rows of a round, once its scores are there. ahead: whether the next one trains meanwhile."""
        training, reports, whole = scoring.training, scoring.reports, scoring.whole
        roster, job = training.drawn.roster, training.job
        self.round_hashes.append(
            weights_sha256(self.state)
        )  # here, not before: the next round trains meanwhile
        if ahead and self.server.round + 1 < self.setup.config.federation.rounds:
            self._ahead = RoundPlan.of(self.setup, self.method, self.server.round + 1)
        test = scoring.test() if scoring.test is not None else None
        val = scoring.val() if scoring.val is not None else None
        now = time.perf_counter()
        seconds, self._last = now - max(training.began, self._last), now
        stage, done = self.setup.stage(job.round), self.server.round
        made = round_rows(done, reports, test, seconds) + validation_rows(done, reports, val)
        if self._clean is not None and test is not None and whole is not None:
            made += self._clean.rows(done, whole, test)
        if scoring.sent is not None:
            tally = scoring.sent()
            made.append(Row(done, "global", "test", "accuracy_broadcast", tally.accuracy, n=tally.n))
        made += (roster.rows(done) if self.setup.config.faults.any else []) + self._accountant.rows(done)
        if training.drawn.surveyed:
            made += self._survey(job, whole)
        if done == self.setup.config.federation.rounds:
            made += before_last(self.setup, self._network, self.spec, job.broadcast)
            made += after_last(self.setup, self._network, whole)
        rows = made if stage is None else [row._replace(stage=stage) for row in made]
        self.folder.rows(rows)
        self._safe = self.server, dict(self.versions)
        return replace(self._event(reports, rows, seconds), straggling=roster.straggling)

    def _job(self, drawn: RoundPlan) -> RoundOrder:
        """The work of the clients that take part."""
        clients, measure = drawn.roster.trained, drawn.measure or drawn.surveyed
        versions = tuple(self.versions.get(client, 0) for client in clients)
        return RoundOrder(
            self.server.broadcast(),
            clients,
            drawn.weights,
            versions,
            measure,
            drawn.stacks,
            drawn.fates,
            drawn.peers,
        )

    def _aggregated(
        self, partial: PartialSum, roster: RoundParticipants, sizes: list[int], most: float
    ) -> ServerState:
        """The server after a round; with no upload to count it waits, its memories and all. most: the
        largest p_i.
        """
        counted = roster.counted
        if not counted:
            return self.server.replace(round=self.server.round + 1)
        fold = UploadAccumulator()
        fold.merge(partial)
        mean_w, mean_b, received = fold.finish(self.server)
        mean_w = self._noisy(mean_w, most)
        self._check_masked(received, len(counted))
        samples, seed = sum(sizes[c] for c in counted), self.setup.config.seed
        own = self._network.differentiable, self._public, self._labelled
        k = ServerContext(self.spec, self.server.round, len(counted), samples, received, seed, mean_b, *own)
        with explained(self.method):
            return server_round(self.method, self.server, mean_w, mean_b, k)

    def _noisy(self, mean: Params, most: float) -> Params:
        """The mean with the server's noise, where the run asks for it: σ times S · max p_i, by which one
        client can move it.
        """
        privacy = self.setup.config.privacy
        if privacy.clip is None or privacy.noise_at != "server":
            return mean
        stream = seeds.generator(self.setup.config.seed, "privacy", self.server.round)
        return add_noise(mean, privacy.noise * privacy.clip * most, stream)

    def _check_masked(self, received: Mapping[str, Received], counted: int) -> None:
        """Masks cancel over all that agreed on them: a message that one of them does not send would leave
        its sum hidden.
        """
        few = {slot: got.count for slot, got in received.items() if got.count != counted}
        if few and self.setup.config.privacy.masks:
            raise UsageError(
                f"privacy.masks: {self.method.name}: of {counted} clients only so many send {few}; use no "
                f"masks"
            )

    def _survey(self, last: RoundOrder, whole: Broadcast | None) -> list[Row]:
        """All clients between rounds; whole: the server's model if that is all a client needs."""
        clients = tuple(range(self.setup.partition.num_clients))
        versions = tuple(self.versions.get(client, 0) for client in clients)
        job = RoundOrder(
            self.server.broadcast(),
            clients,
            (0.0,) * len(clients),
            versions,
            True,
            tuple((c,) for c in clients),
        )
        oracle = not self.method.has_global
        found = self.runtime.survey(job, self._oracle(last) if oracle else whole)
        return survey_rows(self.server.round, found, oracle, [version > 0 for version in versions])

    def _oracle(self, last: RoundOrder) -> Broadcast | None:
        """The server's layers completed by the mean of those that the last participants keep: a model that
        only the simulator can form (docs/papers/gldp.md §7). None where nothing is shared, where buffers stay
        at home, or where no head is used.
        """
        split, personal = self.method.split, self.method.personal
        if (
            split.personal == "all"
            or split.buffers == "local"
            or (personal is not None and personal.predicts)
        ):
            return None
        if not any(last.weights):
            return None  # no upload counted
        versions = (self.server.round,) * len(last.participants)
        total = PointSum()
        for part in self.runtime.own_layers(replace(last, versions=versions)):
            total.merge(part)
        own = total.value(split.own(self._initial.w))
        return self.server.replace(w=self.server.w.joined(own, self._initial.w.names)).broadcast()

    def _event(self, reports: list[Report], rows: list[Row], seconds: float) -> RoundEvent:
        means = {
            (r.model, r.split): r.value
            for r in rows
            if r.client is None and r.class_ is None and r.metric == "accuracy"
        }
        return RoundEvent(
            self.server.round,
            self.setup.config.federation.rounds,
            rows[0].value,
            means.get(("global", "test")),
            means.get(("personal", "local_test")),
            len(reports),
            rows[0].bytes_up or 0,
            rows[0].bytes_down or 0,
            seconds,
            means.get(("global", "val")),
            means.get(("personal", "val")),
        )
