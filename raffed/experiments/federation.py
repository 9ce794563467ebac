"""The loop over the rounds of a run: draw participants, train them, aggregate, measure and record.

This module does not use Ray; a backend does.
"""

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
from raffed.results.row import Row
from raffed.results.score_metrics import BROADCAST_ACCURACY
from raffed.runtime.api import Asked, Backend, RoundOrder
from raffed.runtime.reports import Report, ScoreCounts
from raffed.runtime.setup import Setup
from raffed.runtime.torch_settings import check_unchanged
from raffed.runtime.worker import make_network, make_spec

log = logging.getLogger(__name__)


def weights_sha256(state: State) -> str:
    """Return the SHA-256 of the named weights and buffers as float32, in the model's order."""
    total = hashlib.sha256()
    for params in (state.w, state.b):
        for name, tensor in params.tensors.items():
            total.update(name.encode())
            total.update(tensor.detach().cpu().numpy().tobytes())
    return total.hexdigest()


@dataclass(frozen=True)
class _Training:
    """A round whose training has been requested. `began` is time.perf_counter() at that moment."""

    drawn: RoundPlan
    job: RoundOrder
    began: float
    asked: Asked[tuple[PartialSum, list[Report]]]


@dataclass(frozen=True)
class _Scoring:
    """A round whose uploads have been aggregated and whose scores have been requested.

    `whole` is the global model, or None if there is none. `test` and `val` are its scores. `sent` is the
    score of the broadcast weights, where a server's rule scores other weights.
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
    """The rounds of one run, from the first to the last.

    `versions` maps a client to the number of rounds done when it last took part. The seconds of a round count
    from its beginning, or from the scoring of the previous round if that was later.
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
        self._last = 0.0  # the time when a round was last scored
        self._ahead: RoundPlan | None = None  # plan of the coming round, made while the previous one trains
        self._accountant = Accountant(setup.config.privacy, setup.config.federation.participation)
        for number in range(self.server.round):
            self._took_part(RoundParticipants.of(setup, number).trained, number)
        # The last server whose round has its rows, and the versions at that time. After a failure, saving any
        # other server would leave a gap in the rows.
        self._safe = self.server, dict(self.versions)

    def _took_part(self, clients: tuple[int, ...], round: int) -> None:
        self.versions.update(dict.fromkeys(clients, round + 1))
        self._accountant.add(clients)

    @property
    def state(self) -> State:
        return State(self.server.w, self.server.b)

    def rounds(self, stop: Callable[[], bool] = lambda: False) -> Iterator[RoundEvent]:
        """Execute the remaining rounds and yield an event for each.

        `stop()` is called after every round. What is done is always recorded.
        """
        config = self.setup.config
        try:
            for event in self.next(config.federation.rounds - self.server.round):
                yield event
                # Called once, because a signal between two calls would skip the checkpoint
                done, halt = (
                    self.server.round,
                    stop(),
                )
                if halt or done % config.runtime.checkpoint_every == 0 or done == config.federation.rounds:
                    self.folder.checkpoint(self.server, self.round_hashes, self.versions)
                if halt:
                    break  # training ahead is dropped; it has changed nothing that a checkpoint holds
        except BaseException:
            server, versions = self._safe
            try:
                self.folder.rescue(server, self.round_hashes[: server.round], versions)
            except Exception as second:  # noqa: BLE001 (the first error is the one to tell)
                # The first error already says so
                level = logging.INFO if of_folder(second) else logging.WARNING
                log.log(level, "the rounds since the last checkpoint could not be kept: %s", second)
            raise

    def next(self, count: int) -> Iterator[RoundEvent]:
        """Execute the next `count` rounds without checkpoints and yield an event for each.

        Actors train a round while the previous one is scored and recorded. They do not do so during a survey,
        because it reads what clients keep.
        """
        ahead: _Training | None = None
        for left in reversed(range(count)):
            ended = self._trained(ahead or self._begun())
            ahead = None if not left or ended.training.drawn.surveyed else self._begun()
            yield self._recorded(ended, ahead is not None)

    def step(self) -> RoundEvent:
        """Execute one round, with nothing in parallel."""
        [event] = self.next(1)
        return event

    def _begun(self) -> _Training:
        """Request the training of the next round."""
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
        """Aggregate a round and request its scores."""
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
        """Record the rows of a round when its scores have arrived.

        `ahead` says whether the next round trains meanwhile.
        """
        training, reports, whole = scoring.training, scoring.reports, scoring.whole
        roster, job = training.drawn.roster, training.job
        self.round_hashes.append(
            weights_sha256(self.state)
        )  # at this point, because the next round trains meanwhile
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
            made.append(BROADCAST_ACCURACY.row(done, tally.accuracy, n=tally.n))
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
        """Return the order for the clients that take part."""
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
        """Return the server's state after a round. `most` is the largest p_i.

        Without any upload to count, the server and its memories stay as they are.
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
        """Add the server's noise to the mean, if the run asks for it.

        Its standard deviation is σ times S · max p_i, the distance by which one client can move the mean.
        """
        privacy = self.setup.config.privacy
        if privacy.clip is None or privacy.noise_at != "server":
            return mean
        stream = seeds.generator(self.setup.config.seed, "privacy", self.server.round)
        return add_noise(mean, privacy.noise * privacy.clip * most, stream)

    def _check_masked(self, received: Mapping[str, Received], counted: int) -> None:
        """Check that every masked message was sent by all participants.

        Masks cancel only over all participants that agreed on them. If one does not send a message, the sum
        stays masked.
        """
        few = {slot: got.count for slot, got in received.items() if got.count != counted}
        if few and self.setup.config.privacy.masks:
            raise UsageError(
                f"privacy.masks: {self.method.name}: of {counted} clients only so many send {few}; use no "
                f"masks"
            )

    def _survey(self, last: RoundOrder, whole: Broadcast | None) -> list[Row]:
        """Score all clients between rounds. `whole` is the server's model if a client needs nothing else."""
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
        """Return the server's layers, completed by the mean of the layers that the last participants keep.

        Only the simulator can form this model (docs/papers/gldp.md §7). It is None if nothing is shared, if
        buffers stay with the clients, or if no head is used.
        """
        split, personal = self.method.split, self.method.personal
        if (
            split.personal == "all"
            or split.buffers == "local"
            or (personal is not None and personal.predicts)
        ):
            return None
        if not any(last.weights):
            return None  # no upload was counted
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
