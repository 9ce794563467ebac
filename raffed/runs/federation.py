"""Conduct a run: warn of odd settings, then draw, train, aggregate, measure and record, round by round.

This module does not use Ray; a backend does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from raffed.config.sections import Privacy
from raffed.core.messages import ServerState
from raffed.core.params import State
from raffed.core.round import evaluated_broadcast, reported, server_init
from raffed.core.training.session import override_line
from raffed.federation.selection import needs_losses
from raffed.own.user_code import user_errors
from raffed.results.lock import held, of_folder, written
from raffed.results.origin import work_for
from raffed.results.runfile import RUN_FILE
from raffed.runs.aggregation import CleanScore, RoundAggregator, ServerDevice
from raffed.runs.checkpoint import RunState, Validation, round_sha256
from raffed.runs.events import RoundEvent, round_event
from raffed.runs.final_measures import ModelScores, OwnMeasures, after_last, before_last, fairness
from raffed.runs.folder import RunFolder
from raffed.runs.metric_rows import Accountant, ClientSurvey, IdleTerms, round_rows, validation_rows
from raffed.runs.participation import RoundPlan, losses_by, no_losses
from raffed.runs.round_schedule import RoundInScoring, RoundInTraining, RoundSchedule, Timeline, merged
from raffed.runtime.api import Backend, Stopwatch
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.machine import bf16_gain, check_unchanged
from raffed.runtime.run_method import network_line
from raffed.runtime.setup import Setup
from raffed.runtime.setup_model import has_normalisation, make_network, make_spec

# Warnings about settings that are valid but probably unintended.


log = logging.getLogger(__name__)


def warn(setup: Setup, resumed: bool = False) -> None:
    """Log a warning for each setting that is valid but probably unintended.

    What the method overrides, what it requires of the network, and which parts of the data are used, is said
    when a run begins, and not again when it is resumed.
    """
    config, method, data = setup.config, setup.method, setup.data
    federation, clients = config.federation, len(data.trainable)
    if federation.participation * clients < 0.5:  # rounding would give 0 participants
        log.warning(
            "federation.participation = %g of %d clients is %.2g of one: one client is trained per round",
            federation.participation,
            clients,
            federation.participation * clients,
        )
    if not resumed:
        lines = (override_line(method.training, config.local), network_line(setup.network))
        for line in (*filter(None, lines), *data.dataset.facts.notes):
            log.warning("%s", line)
        if asked := method.hooks["caution"]:
            normalised = has_normalisation(setup.network, data)
            for said in filter(None, (ingredient.caution(normalised) for ingredient in asked.values())):
                log.warning("%s with %s: %s", method.name, setup.network.model.name, said)
    if config.faults.takes_all:
        log.warning(
            "faults: with drop, late or corrupt = 1 no upload ever counts, so the server's model never "
            "changes"
        )
    if config.privacy.noise and method.server.adaptive:
        log.warning(
            "privacy.noise with %s: its server divides by the root of the mean squared update, most of which "
            "may be noise. epsilon holds all the same, but little may be learned; fedavg and fedavgm do not "
            "divide by it",
            method.name,
        )
    partition = data.partition
    if not method.has_global and not any(len(part) for part in (*partition.test, *partition.val)):
        log.warning(
            "%s has no global model and no client has a local test part: no accuracy will be measured; "
            "give data.local_test (--local-test), such as 0.2",
            method.name,
        )
    on_cpu = not config.runtime.gpu_fraction
    if config.numerics.precision == "bf16" and on_cpu and (gain := bf16_gain()) < 1.0:
        log.warning(
            "numerics.precision bf16: on this processor a matrix product takes %.1f times as long as in fp32",
            1 / gain,
        )


class RunProgress:
    """How far a run has come. It holds nothing that computes.

    Args:
        data: The clients and their samples.
        server: The server's state from which the run goes on.
        round_hashes: The hashes of the weights after the rounds that are done.
        validation: When the run ends, and its best model.
        privacy: The section `privacy` of the run.
        ends: The round after which `federation.stop_when` is known to have ended the run, 0 if it did not;
            with None the rule decides.

    Attributes:
        server: The server's present state.
        round_hashes: The hash of the weights after every round.
        versions: Client → number of rounds done when it last took part.
        ended_early: Why the run ends before its last round; empty if it goes on.
    """

    def __init__(
        self,
        data: FederatedData,
        server: ServerState,
        round_hashes: list[str],
        validation: Validation,
        privacy: Privacy,
        ends: int | None,
    ) -> None:
        self._data, self._ends, self.validation = data, ends, validation
        self.server, self.round_hashes = server, list(round_hashes)
        self.versions: dict[int, int] = {}
        self.accountant = Accountant(privacy)
        self.ended_early = ""

    @property
    def over(self) -> bool:
        """Whether the run has come to its end."""
        return bool(self.ended_early) or self.server.round >= self._data.federation.rounds

    @property
    def state(self) -> State:
        return State(self.server.w, self.server.b)

    def took_part(self, clients: tuple[int, ...], round: int, data: FederatedData | None = None) -> None:
        """Note the participants of a round.

        Args:
            clients: The participants.
            round: Number of the model with which they began.
            data: The clients under the settings of that round, if these were others than those of now.
        """
        data = self._data if data is None else data
        self.versions.update(dict.fromkeys(clients, round + 1))
        everyone = len(data.trainable)
        self.accountant.add(clients, data.federation.participants(everyone) / everyone)

    def decide(self) -> None:
        """Find whether the run ends before its last round."""
        done = self.server.round
        if done >= self._data.federation.rounds:
            self.ended_early = ""
        elif self._ends is not None:
            self.ended_early = "as recorded" if done == self._ends else ""
        else:
            rule = self.validation.rule
            self.ended_early = "" if rule is None else rule.reason(self.validation.curve, done)

    def reached(self, past: Mapping[int, ServerState]) -> RunState:
        """Return where the run stands, for a checkpoint. `past` are earlier models that are still needed."""
        hashes = self.round_hashes[: self.server.round]
        return RunState(self.server, hashes, dict(self.versions), self.validation.kept, past)


class RoundLoop:
    """The rounds of one run, from the first to the last.

    The seconds of a round count from its beginning, or from the scoring of the previous round if that was
    later. `ends` is that of `RunProgress`.
    """

    def __init__(self, setup: Setup, runtime: Backend, folder: RunFolder, ends: int | None = None) -> None:
        self.setup, self.runtime, self.folder = setup, runtime, folder
        self.method, self._data = setup.method, setup.data
        config, federation = setup.config, setup.config.federation
        network = make_network(setup.network, self._data)
        self.spec = make_spec(self._data, network.feature_dim, network.norm_names)
        self._network = network
        self._device = ServerDevice(setup, network, runtime)
        self.aggregator = RoundAggregator(setup, self._device, self.spec)
        self._surveys = federation.survey > 0 or bool(self._data.unseen)
        public = self.aggregator.public
        self._own = OwnMeasures(self._data, self.method.name)
        self._idle = IdleTerms([type(ingredient) for _, ingredient in self.method.ingredients()])
        self._clean = None if public is None else CleanScore(self._data, self._device, public)
        with user_errors():
            server: ServerState = folder.resumed or server_init(self.method, network.initial, self.spec)
        validation = Validation(
            federation.stop_when,
            bool(config.data.validation),
            self.method.has_global,
            folder.recorded_rows,
            folder.best,
        )
        self.now = now = RunProgress(
            self._data, server, folder.round_hashes, validation, config.privacy, ends
        )
        self._last = 0.0  # the time when a round was last scored
        self._ahead: RoundPlan | None = None  # plan of the coming round, made while the previous one trains
        self._by_loss = needs_losses(federation)
        losses = losses_by(runtime, lambda: now.server, now.versions) if self._by_loss else no_losses
        self._schedule = RoundSchedule(
            self._data,
            self.method.mean,
            config.clock,
            Timeline(setup, folder.earlier) if config.clock.speeds else None,
            losses,
            folder.past,
            cohort=config.numerics.cohort,
            masks=config.privacy.masks,
        )
        now.versions.update(folder.versions)
        for number in () if folder.versions else range(now.server.round):
            then = folder.earlier.config_at(number, config)
            past = replace(self._data, federation=then.federation, faults=then.faults, seed=then.seed)
            for clients, start in self._schedule.trained(number, past):
                now.took_part(clients, start, past)
        for client in folder.stateless(now.versions) if self.method.keeps_state else ():
            del now.versions[client]
        if now.server.round:
            now.decide()
        # The last server whose round has its rows, and the versions and the best model at that time. After a
        # failure, saving any other server would leave a gap in the rows.
        self._safe = now.reached(self._schedule.past)
        self._watch = Stopwatch()

    def rounds(
        self, stop: Callable[[], bool] = lambda: False, *, count: int | None = None
    ) -> Iterator[RoundEvent]:
        """Execute the remaining rounds and yield an event for each.

        Actors train a round while the previous one is scored and recorded. They do not do so during a survey,
        because it reads what clients keep, nor if the scores may end the run.

        Args:
            stop: Called after every round. What is done is always recorded.
            count: How many rounds to execute, without checkpoints; None for all that remain, with them.
        """
        now, saves = self.now, count is None
        config, schedule = self.setup.config, self._schedule
        left = config.federation.rounds - now.server.round if count is None else count
        ahead: RoundInTraining | None = None
        try:
            while left > 0 and not now.over:
                left -= 1
                ended = self._trained(ahead or self._begun())
                waits = now.validation.rule is not None or ended.training.plan.surveyed
                ahead = None if waits or not left else self._begun()
                yield self._recorded(ended, ahead is not None)
                # Called once, because a signal between two calls would skip the checkpoint
                done, halt = now.server.round, stop()
                if saves and (halt or done % config.runtime.checkpoint_every == 0 or now.over):
                    with self._watch.part("disk"):
                        self.folder.checkpoint(now.reached(schedule.past))
                if halt:
                    break  # training ahead is dropped; it has changed nothing that a checkpoint holds
        except BaseException:
            try:
                if saves:
                    self.folder.rescue(self._safe)
            except Exception as second:  # noqa: BLE001 (the first error is the one to tell)
                # The first error already says so
                level = logging.INFO if of_folder(second) else logging.WARNING
                log.log(level, "the rounds since the last checkpoint could not be kept: %s", second)
            raise

    def step(self) -> RoundEvent:
        """Execute one round, with nothing in parallel."""
        [event] = self.rounds(count=1)
        return event

    def _begun(self) -> RoundInTraining:
        """Request the training of the next round."""
        number, ahead = self.now.server.round, self._ahead
        plan = ahead if ahead is not None and ahead.number == number else self._schedule.plan(number)
        order = self._schedule.order(self.now.server, plan, self.now.versions)
        pieces = self._schedule.pieces(self.now.server, plan, order)
        with self._watch.part("messages"):
            asked = [self.runtime.train(piece) for piece in pieces]
        training = asked[0] if len(asked) == 1 else merged(asked, order.participants)
        return RoundInTraining(plan, order, time.perf_counter(), training, pieces)

    def _trained(self, training: RoundInTraining) -> RoundInScoring:
        """Aggregate a round and request its scores."""
        order, plan, now = training.order, training.plan, self.now
        waits = time.perf_counter()
        partial, reports = training.asked()
        self._watch.waited(time.perf_counter() - waits, (report.share for report in reports))
        check_unchanged()
        self._idle.note(reports, now.server.round + 1 == self._data.federation.rounds)
        for piece in training.pieces or [order]:
            now.took_part(piece.participants, piece.round)
        before, past = now.server, self._schedule.past
        with self._watch.part("sums"):
            now.server = self.aggregator.next_server(before, partial, plan, past)
        self._schedule.advance(before, now.server)
        whole = evaluated_broadcast(self.method, now.server) if self.method.has_global else None
        scored = whole if plan.measure else None
        apart = scored is not None and scored.w is not now.server.w
        with self._watch.part("scoring"):
            asked = {
                part: self.runtime.evaluate(scored, part)
                for part in self._data.scored_rows
                if scored is not None and (part != "val" or self._data.partition.val)
            }
            if apart:
                asked["sent"] = self.runtime.evaluate(now.server.broadcast())
        return RoundInScoring(training, reports, whole, asked)

    def _recorded(self, scoring: RoundInScoring, ahead: bool) -> RoundEvent:
        """Record the rows of a round when its scores have arrived.

        `ahead` says whether the next round trains meanwhile.
        """
        training, reports, whole, now = scoring.training, scoring.reports, scoring.whole, self.now
        rounds, plan = self._data.federation.rounds, training.plan
        # At this point, because the next round trains meanwhile
        now.round_hashes.append(round_sha256(now.server))
        if ahead and now.server.round + 1 < rounds and not self._by_loss:
            self._ahead = self._schedule.plan(now.server.round + 1, losses=False)
        with self._watch.part("scoring"):
            test, val = (scoring.asked[part]() if part in scoring.asked else None for part in ("test", "val"))
        ended = time.perf_counter()
        seconds, self._last = ended - max(training.began, self._last), ended
        stage, done = self._data.stage(training.order.round), now.server.round
        measured = round_rows(done, reports, test, seconds) + validation_rows(done, reports, val)
        with self._watch.part("scoring"):
            if self._clean is not None and test is not None and whole is not None:
                measured += self._clean.rows(done, whole, test)
            scores = {
                split: self._device.do(ModelScores(whole, split))
                for split in self._own.scored
                if plan.measure and whole is not None
            }
            with user_errors():
                numbers = reported(self.method.hooks["report"], self.method.server, now.server)
            measured += self._own.rows(done, scores, reports) + self._own.of_method(done, numbers, reports)
            measured += self._schedule.further_rows(scoring, done)
            measured += now.accountant.rows(done)
            survey = (
                ClientSurvey(self.setup, self.runtime, self._network.initial, self.spec.norms)
                if self._surveys
                else None
            )
            if plan.surveyed and survey is not None:
                measured += survey.rows(now.server, now.versions, training.order, whole)
        now.validation.add(done, measured, now.server)
        now.decide()
        with self._watch.part("scoring"):
            if survey is not None and (plan.surveyed or now.over):
                measured += survey.unseen_rows(now.server, whole)
            if now.over and self._data.federation.asks("memory"):
                measured += before_last(self.setup, self._network, self.spec, training.order.broadcast)
            if now.over:
                measured += after_last(self.method.split, self._data, self._network, whole)
            if now.over and self._data.federation.asks("fairness"):
                measured += fairness(done, reports)
        rows = measured if stage is None else [row._replace(stage=stage) for row in measured]
        with self._watch.part("disk"):
            if self._own.reported:
                self.folder.describe(self._own.reported.values())
            self.folder.writer.add(rows)
        self._safe = now.reached(self._schedule.past)
        return replace(
            round_event(done, rounds, reports, rows, seconds),
            straggling=plan.participants.straggling,
            metrics=self._own.means(rows),
            profile=self._watch.lap(),
        )


# Execute the rounds of a run on a backend, and record how they end.
#
# This happens in the process of the command, or in the driver actor.


Stop = Callable[[], bool]


class Asker(NamedTuple):
    """The process for which another one conducts a run.

    Attributes:
        process: What holds the run's folder, as messages name it.
        command: The command that was typed; empty if there is none.
    """

    process: str
    command: str


def conduct(
    setup: Setup, path: Path, resumed: bool, runtime: Backend, stop: Stop, asker: Asker | None = None
) -> Iterator[RoundEvent]:
    """Open the run's folder, execute the rounds on a backend, and write into run.json how they ended.

    This happens in this process or in the driver actor. The folder is locked meanwhile, for this process or
    for the one that has asked for the run.
    """
    if asker is not None:
        work_for(asker.command)
    with closing(runtime), held(path, asker.process if asker else None), written(path):
        folder = RunFolder(path, setup, resume=resumed and (path / RUN_FILE).exists())
        with folder.record.how_it_ends(), written(path):
            folder.record.note_placement(runtime.placement())
            loop = RoundLoop(setup, runtime, folder)
            yield from loop.rounds(stop)
            now = loop.now
            if now.over:
                digests = runtime.client_state_digests(now.versions)
                folder.record.note_placement(runtime.placement())
                best = now.validation.kept
                weights = round_sha256(now.server)
                folder.finish(now.server, weights, digests, now.round_hashes, best, now.ended_early)
            else:
                folder.record.write({"state": "stopped", "error": None})
