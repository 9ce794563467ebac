"""Conduct a run: warn of odd settings, then draw, train, aggregate, measure and record, round by round.

This module does not use Ray; a backend does.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from raffed.core.ingredients import Ingredient
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import ServerState
from raffed.core.params import State
from raffed.core.round import evaluated_broadcast, server_init
from raffed.core.training.overrides import override_line
from raffed.errors import RaffedError, RunFolderError
from raffed.federation.faults import attack_rows
from raffed.federation.selection import needs_losses
from raffed.own.user_code import user_errors
from raffed.results.lock import held, this_process
from raffed.results.metric import Row
from raffed.results.metrics import BROADCAST_ACCURACY, TRAINING_ACCURACY
from raffed.results.origin import command_line, work_for
from raffed.results.runfile import RUN_FILE
from raffed.runs.aggregation import CleanScore, RoundAggregator, ServerDevice
from raffed.runs.best_model import Validation
from raffed.runs.checkpoint import RunState, round_sha256
from raffed.runs.events import RoundEvent, round_event
from raffed.runs.final_measures import OwnMeasures, after_last, before_last, fairness
from raffed.runs.folder import RunFolder
from raffed.runs.folder_place import of_folder, written
from raffed.runs.metric_rows import Accountant, ClientSurvey, IdleTerms, round_rows, validation_rows
from raffed.runs.participation import RoundPlan, losses_by
from raffed.runs.round_schedule import RoundInScoring, RoundInTraining, RoundSchedule, asked_of
from raffed.runtime.api import Backend
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.machine import bf16_gain, bf16_in_hardware, check_unchanged
from raffed.runtime.network_setup import has_normalisation, make_network, make_spec
from raffed.runtime.reports import Stopwatch
from raffed.runtime.run_method import network_line
from raffed.runtime.setup import Setup

# Warnings about settings that are valid but probably unintended.


log = logging.getLogger(__name__)


def warn(setup: Setup, resumed: bool = False) -> None:
    """Log a warning for each setting that is valid but probably unintended.

    What the method overrides, what it requires of the network, and which parts of the data are used, is said
    when a run begins, and not again when it is resumed.
    """
    config, federation, clients = setup.config, setup.config.federation, len(setup.data.trainable)
    if federation.participation * clients < 0.5:  # rounding would give 0 participants
        log.warning(
            "federation.participation = %g of %d clients is %.2g of one: one client is trained per round",
            federation.participation,
            clients,
            federation.participation * clients,
        )
    if not resumed and (line := override_line(setup.method, config.local)):
        log.warning("%s", line)
    if not resumed and (line := network_line(setup.method)):
        log.warning("%s", line)
    for line in () if resumed else (*setup.dataset.facts.notes, *_about_network(setup)):
        log.warning("%s", line)
    if config.faults.takes_all:
        log.warning(
            "faults: with drop, late or corrupt = 1 no upload ever counts, so the server's model never "
            "changes"
        )
    if config.privacy.noise and setup.method.server.adaptive:
        log.warning(
            "privacy.noise with %s: its server divides by the root of the mean squared update, most of which "
            "may be noise. epsilon holds all the same, but little may be learned; fedavg and fedavgm do not "
            "divide by it",
            setup.method.name,
        )
    if not setup.method.has_global and not any(
        len(part) for part in (*setup.partition.test, *setup.partition.val)
    ):
        log.warning(
            "%s has no global model and no client has a local test part: no accuracy will be measured; "
            "give data.local_test (--local-test), such as 0.2",
            setup.method.name,
        )
    if (
        config.numerics.precision == "bf16"
        and not config.runtime.gpu_fraction
        and (gain := bf16_gain()) < 1.0
    ):
        why = "has no instructions for it" if bf16_in_hardware() is False else "is slower in it"
        log.warning(
            "numerics.precision bf16: this processor %s: a matrix product takes %.1f times as long as "
            "in fp32",
            why,
            1 / gain,
        )


def _about_network(setup: Setup) -> list[str]:
    """Return what the method's ingredients say about the run's network, with the names of both."""
    asked = [one for _, one in setup.method.ingredients() if type(one).caution is not Ingredient.caution]
    if not asked:
        return []
    found = [one.caution(has_normalisation(setup)) for one in asked]
    return [f"{setup.method.name} with {setup.config.model.name}: {line}" for line in found if line]


class RoundLoop:
    """The rounds of one run, from the first to the last.

    `versions` maps a client to the number of rounds done when it last took part. The seconds of a round count
    from its beginning, or from the scoring of the previous round if that was later. `ends` is the round after
    which `federation.stop_when` is known to have ended the run, 0 if it did not; with None the rule decides.
    """

    def __init__(self, setup: Setup, runtime: Backend, folder: RunFolder, ends: int | None = None) -> None:
        self.setup, self.runtime, self.folder = setup, runtime, folder
        self.method = setup.method
        network = make_network(setup)
        self.spec = make_spec(setup.data, network.feature_dim, network.norm_names)
        self._network = network
        device = ServerDevice(setup, network, runtime)
        self.aggregator = RoundAggregator(setup, device, self.spec)
        self._survey = ClientSurvey(setup, runtime, network.initial, self.spec.norms)
        public = self.aggregator.public
        self._own = OwnMeasures(setup, device)
        self._idle = IdleTerms(setup.method)
        self._clean = None if public is None else CleanScore(setup.data, device, public)
        with user_errors():
            self.server: ServerState = folder.resumed or server_init(self.method, network.initial, self.spec)
        self.round_hashes: list[str] = list(folder.round_hashes)
        self.versions: dict[int, int] = {}
        self._last = 0.0  # the time when a round was last scored
        self._ahead: RoundPlan | None = None  # plan of the coming round, made while the previous one trains
        self._accountant = Accountant(setup.config.privacy)
        present = weakref.proxy(self)  # a cycle would keep the data of a finished run in memory
        self._losses = losses_by(runtime, lambda: present.server, self.versions)
        self._by_loss = needs_losses(setup.config.federation)
        self._schedule = RoundSchedule(setup, self._losses, folder.past)
        self.versions.update(folder.versions)
        for number in () if folder.versions else range(self.server.round):
            then = folder.earlier.config_at(number, setup.config)
            past = replace(setup.data, federation=then.federation, faults=then.faults, seed=then.seed)
            for clients, start in self._schedule.trained(number, past):
                self._took_part(clients, start, past)
        has_global = self.method.has_global
        self.validation = Validation(setup.config, has_global, folder.recorded_rows(), folder.best)
        self._ends = ends
        self.ended_early = self._reason_to_end() if self.server.round else ""
        # The last server whose round has its rows, and the versions and the best model at that time. After a
        # failure, saving any other server would leave a gap in the rows.
        self._safe = self._reached()
        self._watch = Stopwatch()

    def _took_part(self, clients: tuple[int, ...], round: int, data: FederatedData) -> None:
        """Note the participants of a round under the settings that it was executed with."""
        self.versions.update(dict.fromkeys(clients, round + 1))
        everyone = len(data.trainable)
        self._accountant.add(clients, data.federation.participants(everyone) / everyone)

    def _reason_to_end(self) -> str:
        """Return why the run ends before its last round, with the rounds done; empty if it goes on."""
        done = self.server.round
        if done >= self.setup.config.federation.rounds:
            return ""
        if self._ends is not None:
            return "as recorded" if done == self._ends else ""
        return self.validation.reason_to_end(done)

    @property
    def over(self) -> bool:
        """Whether the run has come to its end."""
        return bool(self.ended_early) or self.server.round >= self.setup.config.federation.rounds

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
                if halt or done % config.runtime.checkpoint_every == 0 or self.over:
                    with self._watch.part("disk"):
                        self.folder.checkpoint(self._reached())
                if halt:
                    break  # training ahead is dropped; it has changed nothing that a checkpoint holds
        except BaseException:
            try:
                self.folder.rescue(self._safe)
            except Exception as second:  # noqa: BLE001 (the first error is the one to tell)
                # The first error already says so
                level = logging.INFO if of_folder(second) else logging.WARNING
                log.log(level, "the rounds since the last checkpoint could not be kept: %s", second)
            raise

    def _reached(self) -> RunState:
        """Return where the run stands, for a checkpoint."""
        hashes = self.round_hashes[: self.server.round]
        return RunState(self.server, hashes, dict(self.versions), self.validation.kept, self._schedule.past)

    def next(self, count: int) -> Iterator[RoundEvent]:
        """Execute the next `count` rounds without checkpoints and yield an event for each.

        Actors train a round while the previous one is scored and recorded. They do not do so during a survey,
        because it reads what clients keep, nor if the scores may end the run.
        """
        ahead: RoundInTraining | None = None
        decides = self.validation.rule is not None
        for left in reversed(range(0 if self.over else count)):
            ended = self._trained(ahead or self._begun())
            ahead = None if not left or decides or ended.training.plan.surveyed else self._begun()
            yield self._recorded(ended, ahead is not None)
            if self.over:
                return

    def step(self) -> RoundEvent:
        """Execute one round, with nothing in parallel."""
        [event] = self.next(1)
        return event

    def _begun(self) -> RoundInTraining:
        """Request the training of the next round."""
        number, ahead = self.server.round, self._ahead
        plan = ahead if ahead is not None and ahead.number == number else self._schedule.plan(number)
        order = self._schedule.order(self.server, plan, self.versions)
        pieces = self._schedule.pieces(self.server, plan, order)
        with self._watch.part("messages"):
            asked = asked_of(self.runtime, order, pieces)
        return RoundInTraining(plan, order, time.perf_counter(), asked, pieces)

    def _trained(self, training: RoundInTraining) -> RoundInScoring:
        """Aggregate a round and request its scores."""
        order, plan = training.order, training.plan
        waits = time.perf_counter()
        partial, reports = training.asked()
        self._watch.waited(time.perf_counter() - waits, (report.share for report in reports))
        check_unchanged()
        self._idle.note(reports, self.server.round + 1 == self.setup.config.federation.rounds)
        for piece in training.pieces or [order]:
            self._took_part(piece.participants, piece.round, self.setup.data)
        before, past = self.server, self._schedule.past
        with self._watch.part("sums"):
            self.server = self.aggregator.next_server(before, partial, plan, past)
        self._schedule.advance(before, self.server)
        whole = evaluated_broadcast(self.method, self.server) if self.method.has_global else None
        scored = whole if plan.measure else None
        apart = scored is not None and scored.w is not self.server.w
        with self._watch.part("scoring"):
            asked = {
                part: self.runtime.evaluate(scored, part)
                for part in self.setup.data.scored_rows
                if scored is not None and (part != "val" or self.setup.partition.val)
            }
            sent = self.runtime.evaluate(self.server.broadcast()) if apart else None
        test, val = asked.get("test"), asked.get("val")
        return RoundInScoring(
            training, reports, whole, test, val, sent, asked.get("attack"), asked.get("train")
        )

    def _recorded(self, scoring: RoundInScoring, ahead: bool) -> RoundEvent:
        """Record the rows of a round when its scores have arrived.

        `ahead` says whether the next round trains meanwhile.
        """
        training, reports = scoring.training, scoring.reports
        participants, order = training.plan.participants, training.order
        # At this point, because the next round trains meanwhile
        self.round_hashes.append(round_sha256(self.server))
        later = ahead and self.server.round + 1 < self.setup.config.federation.rounds
        if later and not self._by_loss:
            self._ahead = self._schedule.plan(self.server.round + 1, losses=False)
        with self._watch.part("scoring"):
            test = scoring.test() if scoring.test is not None else None
            val = scoring.val() if scoring.val is not None else None
        now = time.perf_counter()
        seconds, self._last = now - max(training.began, self._last), now
        stage, done = self.setup.data.stage(order.round), self.server.round
        made = round_rows(done, reports, test, seconds) + validation_rows(done, reports, val)
        with self._watch.part("scoring"):
            made += self._further_rows(scoring, test)
        self.validation.add(done, made, self.server)
        self.ended_early = self._reason_to_end()
        with self._watch.part("scoring"):
            made += self._closing_rows(scoring)
        rows = made if stage is None else [row._replace(stage=stage) for row in made]
        with self._watch.part("disk"):
            self.folder.describe(self._own.reported.values())
            self.folder.rows(rows)
        self._safe = self._reached()
        event = round_event(done, self.setup.config.federation.rounds, reports, rows, seconds)
        return replace(
            event,
            straggling=participants.straggling,
            metrics=self._own.means(rows),
            profile=self._watch.lap(),
        )

    def _further_rows(self, scoring: RoundInScoring, test: ScoreCounts | None) -> list[Row]:
        """Return the rows of a round beside those of its reports and of its scores on test data."""
        training, whole, done = scoring.training, scoring.whole, self.server.round
        made: list[Row] = []
        if self._clean is not None and test is not None and whole is not None:
            made += self._clean.rows(done, whole, test)
        made += self._own.rows(done, whole if training.plan.measure else None, scoring.reports)
        made += self._own.of_method(self.server, scoring.reports)
        for metric, asked in ((BROADCAST_ACCURACY, scoring.sent), (TRAINING_ACCURACY, scoring.train)):
            if asked is not None:
                counts = asked()
                made.append(metric.row(done, counts.accuracy, n=counts.n))
        made += training.plan.participants.rows(done) if self.setup.config.faults.any else []
        made += self._accountant.rows(done) + self._schedule.rows(training.plan)
        config, clients = self.setup.config, self.setup.partition.num_clients
        trained = training.order.participants
        made += attack_rows(config.faults, config.seed, clients, done, trained, scoring.attack)
        if training.plan.surveyed:
            made += self._survey.rows(self.server, self.versions, training.order, whole)
        return made

    def _closing_rows(self, scoring: RoundInScoring) -> list[Row]:
        """Return the rows that depend on whether this was the last round."""
        made: list[Row] = []
        if scoring.training.plan.surveyed or self.over:
            made += self._survey.unseen_rows(self.server, scoring.whole)
        if self.over:
            made += before_last(self.setup, self._network, self.spec, scoring.training.order.broadcast)
            made += after_last(self.method, self.setup.data, self._network, scoring.whole)
            if self.setup.config.federation.asks("fairness"):
                made += fairness(self.server.round, scoring.reports)
        return made


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


def this_asker() -> Asker:
    """Return this process as one that asks another one to conduct a run."""
    return Asker(this_process(), command_line())


def conduct_at(
    setup: Setup, path: Path, resumed: bool, runtime: Backend, stop: Stop, asker: Asker | None = None
) -> Iterator[RoundEvent]:
    """Open the run's folder and execute the rounds on a backend, in this process or in the driver actor.

    The folder is locked meanwhile, for this process or for the one that has asked for the run.
    """
    if asker is not None:
        work_for(asker.command)
    with closing(runtime), held(path, asker.process if asker else None), written(path):
        folder = RunFolder(path, setup, resume=resumed and (path / RUN_FILE).exists())
        yield from conduct(setup, folder, runtime, stop)


def conduct(setup: Setup, folder: RunFolder, runtime: Backend, stop: Stop) -> Iterator[RoundEvent]:
    """Execute the rounds on a backend and write into run.json how they ended."""
    try:
        with written(folder.path):
            folder.note_placement(runtime.placement())
            loop = RoundLoop(setup, runtime, folder)
            yield from loop.rounds(stop)
            _close(loop)
    except (KeyboardInterrupt, GeneratorExit):
        _ended(folder, "stopped", "interrupted")
        raise
    except RaffedError as error:
        _ended(folder, "failed", str(error))
        if isinstance(error, RunFolderError):  # not a refused request: the run had begun and could not go on
            raise RaffedError(str(error)) from error
        raise
    except BaseException as error:
        _ended(folder, "failed", f"{type(error).__name__}: {error}")
        raise


def _close(loop: RoundLoop) -> None:
    """Write into run.json that the run is finished, or that it was stopped."""
    folder, backend = loop.folder, loop.runtime
    if not loop.over:
        folder.end("stopped", None)
        return
    digests = backend.client_state_digests(loop.versions)
    folder.note_placement(backend.placement())
    hashes, best = loop.round_hashes, loop.validation.kept
    folder.finish(loop.server, round_sha256(loop.server), digests, hashes, best, loop.ended_early)


def _ended(folder: RunFolder, state: str, error: str) -> None:
    """Write down how a run ended. If that fails too, only log it, so that the first error is reported."""
    try:
        folder.end(state, error)
    except OSError as second:
        level = logging.INFO if of_folder(second) else logging.WARNING
        log.log(level, "%s: its state could not be put down: %s", folder.path, second)
