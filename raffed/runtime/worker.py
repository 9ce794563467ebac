"""The clients in one process: data, states, one scratch network, and what happens to their uploads.

It is the body of every actor, without Ray, and of the serial backend.
"""

from __future__ import annotations

import functools
import itertools
import operator
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import Mask, PointSum, together
from raffed.core.aggregation.robust_means import add_noise, clip_update
from raffed.core.aggregation.uploads import PartialSum, UploadAccumulator
from raffed.core.measures.scores import NO_SCORES, ScoreCounts
from raffed.core.measures.term_strength import term_strengths
from raffed.core.messages import Broadcast, Upload, moved
from raffed.core.params import Params, State
from raffed.core.round import between_rounds, client_reported, client_rounds, explained, joined
from raffed.core.server import replied
from raffed.core.stacked.executor import stacked
from raffed.core.training.session import Participant, TrainingSession, one_by_one
from raffed.core.training.task import Augmentation
from raffed.data.transforms import augment_by, augment_draws, prepare_inputs
from raffed.errors import NumericsError, UsageError
from raffed.federation.faults import attacked, attackers, damaged, is_refused
from raffed.own.user_code import user_errors
from raffed.runtime.api import (
    ActorShare,
    Asked,
    ParticipantOrder,
    Report,
    RoundOrder,
    ServerWork,
    Stopwatch,
    SurveyedClient,
)
from raffed.runtime.federated_data import PARTS, ClientDataCache, chunks
from raffed.runtime.machine import deterministic_kernels, gpu_of, keep_freed_memory, set_threads
from raffed.runtime.record_files import ClientStateStore
from raffed.runtime.scoring import ModelScorer, RoundScorer
from raffed.runtime.setup import Setup
from raffed.runtime.setup_model import make_network, make_spec

# What happens to uploads between the client that made them and the partial sum to which they are added.


class UploadPipeline:
    """Adds up the uploads of a worker's clients.

    Attacks, clipping, noise, masks and faults are those of the run. A clipped or masked upload of an attacker
    is what it sends, clipped or masked.
    """

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        self._plan, self._privacy, self._seed = config.faults, config.privacy, config.seed
        self._keep = setup.method.keeps_uploads
        self._attackers = attackers(config.faults, config.seed, setup.data.trainable)

    def send(
        self,
        accumulator: UploadAccumulator,
        uploads: Sequence[tuple[ParticipantOrder, Params, Upload]],
        round: int,
        where: str,
    ) -> None:
        """Add up the uploads that count, and check that damaged ones are refused.

        Args:
            accumulator: The partial sum.
            uploads: Clients with what they would upload if they had not moved, and what they upload.
            round: Number of the round, counted from 0.
            where: Beginning of an error message.
        """
        counted = []
        for entry, still, plain in uploads:
            sent = self._sent(plain, still, round, entry.client)
            upload = self._guarded(sent, still, round, entry.client, where)
            if entry.fault.outcome == "counted":
                counted.append((entry.client, entry.weight, upload))
            elif entry.fault.outcome == "refused":
                self._refuse(upload, round, entry.client, where)
        if counted:
            clients, weights, whole = zip(*counted, strict=True)
            accumulator.add_all(clients, weights, whole, where)

    def add_mask(self, accumulator: UploadAccumulator, share: ActorShare, round: int) -> None:
        """Add the masks of these clients to every sum, after all uploads were added, if the run has masks."""
        if share.peers:
            for entry in itertools.chain.from_iterable(share.stacks):
                if entry.fault.outcome == "counted":
                    accumulator.add_mask(Mask(self._seed, round, entry.client, share.peers))

    def _sent(self, upload: Upload, still: Params, round: int, client: int) -> Upload:
        """Return what a client sends. An attacker sends something else than it has trained."""
        attacks = client in self._attackers
        return attacked(upload, still, self._plan, self._seed, round, client) if attacks else upload

    def _guarded(self, upload: Upload, still: Params, round: int, client: int, where: str) -> Upload:
        privacy = self._privacy
        if privacy.clip is None:
            return upload
        extra = [
            *upload.slots,
            *(["BatchNorm statistics"] if len(upload.b) else []),
            *(["a report about class counts"] if upload.report is not None else []),
            *(["shares of columns"] if upload.shares is not None else []),
            *(["uploads one by one"] * self._keep),
        ]
        if extra:
            raise UsageError(
                f"privacy.clip: {where}: the server also gets {', '.join(extra)}, not only the sum of "
                "the weights, which clipping and noise do not cover; use a method that sends weights "
                "alone, and a network without BatchNorm"
            )
        w = clip_update(upload.w, still, privacy.clip)
        if privacy.noise_at == "client":
            stream = seeds.generator(self._seed, "privacy", round, client)
            w = add_noise(w, privacy.noise * privacy.clip, stream)
        return upload if w is upload.w else upload.replace(w=w)

    def _refuse(self, upload: Upload, round: int, client: int, where: str) -> None:
        kind = self._plan.corrupt_kind
        spoilt = damaged(upload, kind, self._seed, round, client)
        if spoilt is not upload and not is_refused(spoilt, self._keep):
            raise NumericsError(f"{where}, client {client}: an upload damaged by {kind} was not refused")


T = TypeVar("T")


class ClientWorker:
    """Trains and scores clients.

    Their data are kept up to a limit (federated_data.py), first those of the clients in `home` (default:
    all).
    """

    def __init__(
        self,
        setup: Setup,
        states_folder: Path | None,
        device: torch.device | str = "cpu",
        *,
        home: frozenset[int] | None = None,
    ) -> None:
        self.setup, self.method = setup, setup.method
        self.device = torch.device(device)
        if self.device.type == "cuda":
            deterministic_kernels()
        self.store = ClientStateStore(states_folder, self.method.keeps_state)
        config, transform = setup.config, setup.data.transform
        self.net = make_network(setup.network, setup.data, self.device)
        augment = Augmentation(
            lambda n, g: augment_draws(n, transform, g), lambda x, draws: augment_by(x, transform, draws)
        )
        spec = make_spec(setup.data, self.net.feature_dim, self.net.norm_names)
        execute = stacked if config.numerics.cohort > 1 else one_by_one
        augmented = augment if transform.augments else None
        self.uploads = UploadPipeline(setup)
        self.session = TrainingSession(self.net, config.local, config.seed, spec, augmented, execute)
        self.data = ClientDataCache(setup.data, self.net, self.device, home, self.method.needs_held_out)
        self.scorer = ModelScorer(self.method.personal, self.net, setup.dataset.num_classes)
        self._scores = RoundScorer(self.scorer, self.data, setup.data)

    def warm_up(self) -> None:
        """Load the home clients' data and let torch do its one-time work, before the first round."""
        self.data.fill()
        x = prepare_inputs(self.setup.dataset.x[:1], self.setup.data.transform, self.setup.dataset.max_value)
        x, y = torch.zeros(2, *x.shape[1:], dtype=x.dtype), torch.zeros(2, dtype=torch.int64)
        self.net.noise.generator = seeds.generator_on(self.device, self.setup.config.seed, "dropout")
        f = self.net.forward(x.to(self.device), y.to(self.device))
        torch.autograd.grad(f.logits.sum(), list(self.net.leaves("all").values()), materialize_grads=True)
        self.net.load(self.net.initial)

    @user_errors()
    def train(self, broadcast: Broadcast, share: ActorShare) -> tuple[PartialSum, list[Report]]:
        """Train these clients for a round, and return their sums and, in client order, their reports."""
        watch = Stopwatch()
        self.data.enter(self.setup.data.stage(broadcast.round))
        accumulator = UploadAccumulator(self.method.keeps_uploads, self.setup.config.clock.mixing)
        reports: list[Report] = []
        # Small uploads are added up together, because an operation costs more than its numbers
        waiting: list[tuple[ParticipantOrder, Params, Upload]] = []
        where = f"{self.method.name}, round {broadcast.round + 1}"  # counted from 1, as in the metric rows
        at_once = together(self.net.w_layout.size)
        here = moved(broadcast, self.device)
        for stack in share.stacks:
            sent = [download(here, entry.client, self.device) for entry in stack]
            participants = [
                participant_of(entry, self.store, self.data, down)
                for entry, down in zip(stack, sent, strict=True)
            ]
            # The seconds of training, without scoring, keeping and sending, as in Fig. 4 of FedMR
            began = time.perf_counter()
            with explained(self.method):
                rounds = client_rounds(self.method, here, participants, self.session)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # work still queued on the GPU belongs to training
            spent = (time.perf_counter() - began) / len(participants)
            watch.add("training", spent * len(participants))
            pairs = list(zip(participants, rounds, strict=True))
            with watch.part("scoring"):
                scores = [
                    self._scores.of(broadcast.round, participant, done) if share.measure else NO_SCORES
                    for participant, done in pairs
                ]
                if share.measure and self.setup.config.federation.measures_strength(broadcast.round):
                    strengths = [term_strengths(self.method, here, *pair, self.session) for pair in pairs]
                    scores = [
                        score._replace(strengths=terms)
                        for score, terms in zip(scores, strengths, strict=True)
                    ]
            with watch.part("disk"):
                for participant, done in pairs:
                    self.store.put(participant.client, broadcast.round + 1, done.client_state)
            waiting += [(entry, done.still, done.upload) for entry, done in zip(stack, rounds, strict=True)]
            if len(waiting) >= at_once:
                with explained(self.method), watch.part("sums"):
                    self.uploads.send(accumulator, waiting, broadcast.round, where)
                waiting = []
            for (participant, done), down, score in zip(pairs, sent, scores, strict=True):
                by = self.method.compression
                up = done.upload.nbytes() if by is None else by.nbytes(done.upload)
                reports.append(
                    Report(
                        participant.client,
                        participant.data.n,
                        done.loss,
                        done.steps,
                        up,
                        down.nbytes(),
                        spent,
                        score,
                        idle=done.idle,
                        numbers=client_reported(self.method.hooks["report_client"], done),
                    )
                )
        with explained(self.method), watch.part("sums"):
            self.uploads.send(accumulator, waiting, broadcast.round, where)
        with watch.part("sums"):
            self.uploads.add_mask(accumulator, share, broadcast.round)
            partial = accumulator.export()
        spent_here = watch.share()
        reports = [report._replace(share=spent_here) for report in reports]
        return partial, sorted(reports, key=lambda report: report.client)

    @user_errors()
    def evaluate(self, broadcast: Broadcast, chunks: range) -> dict[int, ScoreCounts]:
        """Score the global model on these chunks (see `chunks`), and return the counts of each chunk."""
        state = joined(self.method.split, broadcast, None, self.net)
        return {chunk: self.scorer.of(state, *self.data.test_chunk(chunk)) for chunk in chunks}

    @user_errors()
    def losses(self, broadcast: Broadcast, share: ActorShare) -> dict[int, float]:
        """Return client → mean cross-entropy of the downloaded model on its training samples."""
        self.data.enter(self.setup.data.stage(broadcast.round))
        here, losses = moved(broadcast, self.device), {}
        for entry in itertools.chain.from_iterable(share.stacks):
            data = self.data.client(entry.client)
            sent = download(here, entry.client, self.device)
            state = joined(self.method.split, sent, self.store.get(entry.client, entry.version), self.net)
            losses[entry.client] = self.scorer.of(state, data.x, data.y).mean_loss
        return losses

    @user_errors()
    def survey(
        self, broadcast: Broadcast, whole: Broadcast | None, share: ActorShare
    ) -> list[SurveyedClient]:
        """Score clients between rounds on their local test parts.

        Args:
            broadcast: What the server sends.
            whole: The server's model with all its layers, or None if it does not have all of them.
            share: The clients.
        """
        self.data.enter(self.setup.data.stage(broadcast.round - 1))
        here = moved(broadcast, self.device)
        full = None if whole is None else State(whole.w, whole.b).to(self.device)
        surveyed = []
        for entry in itertools.chain.from_iterable(share.stacks):
            client = entry.client
            if len(self.setup.partition.test[client]):
                participant = participant_of(entry, self.store, self.data)
                held = between_rounds(self.method, here, participant, self.session)
                x, y = self.data.local_part("test", client)
                surveyed.append(
                    SurveyedClient(
                        client, self.scorer.survey(held, full, x, y, participant.data.class_counts > 0)
                    )
                )
        return surveyed

    def own_layers(self, share: ActorShare) -> NDArray[np.int64] | None:
        """Return Σ p_i v_i of the layers that these clients keep, as an exact sum."""
        total = PointSum()
        for entry in itertools.chain.from_iterable(share.stacks):
            client_state = self.store.get(entry.client, entry.version)
            if client_state is not None:  # it may be on this device, or was read from disk to the CPU
                total.add(
                    client_state.v.to(self.device), entry.weight, f"own layers of client {entry.client}"
                )
        return total.export()

    @user_errors()
    def server_work(self, work: ServerWork[T]) -> T:
        """Do work of the server with this worker's network. No client's model is changed."""
        with explained(self.method):
            return work(self.net, self.setup)


def download(broadcast: Broadcast, client: int, device: torch.device) -> Broadcast:
    """Return what a client downloads; the broadcast itself if nothing in it is addressed."""
    sent = replied(broadcast, client)
    return sent if sent is broadcast else moved(sent, device)


def participant_of(
    entry: ParticipantOrder, store: ClientStateStore, data: ClientDataCache, sent: Broadcast | None = None
) -> Participant:
    """Return a client that takes part, with its state and its data."""
    state = store.get(entry.client, entry.version)
    return Participant(entry.client, state, data.client(entry.client), entry.fault.completed_fraction, sent)


def total(counts: dict[int, ScoreCounts]) -> ScoreCounts:
    """Add the chunks' counts in chunk order, so that it does not matter who counted them."""
    return functools.reduce(operator.add, (counts[chunk] for chunk in sorted(counts)))


# The serial backend: one process, and one client after the other. It is the reference for tests and
# debugging, and fast enough for very small runs.


class SerialBackend:
    """A `Backend` in this process. Work is done when its result is requested.

    The calling thread uses the run's number of torch threads, and gets its own number back on `close`. Other
    threads of the program keep theirs. Freed memory is kept (runtime/machine.py).
    """

    def __init__(self, setup: Setup, states_folder: Path | None = None) -> None:
        self._before, self._threads = torch.get_num_threads(), setup.config.runtime.threads
        set_threads(self._threads)
        keep_freed_memory()
        self._worker = ClientWorker(
            setup, states_folder, "cuda" if setup.config.runtime.gpu_fraction else "cpu"
        )
        self._chunks = {part: chunks(setup.data, part) for part in PARTS}

    def train(self, order: RoundOrder) -> Asked[tuple[PartialSum, list[Report]]]:
        def trained() -> tuple[PartialSum, list[Report]]:
            set_threads(self._threads)  # the caller may have changed it between rounds
            return self._worker.train(order.broadcast, order.share(order.stacks))

        return trained

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[ScoreCounts]:
        return lambda: total(self._worker.evaluate(broadcast, self._chunks[part]))

    def losses(self, order: RoundOrder) -> list[float]:
        losses = self._worker.losses(order.broadcast, order.share(order.stacks))
        return [losses[client] for client in order.participants]

    def survey(self, order: RoundOrder, whole: Broadcast | None) -> list[SurveyedClient]:
        return self._worker.survey(order.broadcast, whole, order.share(order.stacks))

    def own_layers(self, order: RoundOrder) -> list[NDArray[np.int64]]:
        layers = self._worker.own_layers(order.share(order.stacks))
        return [] if layers is None else [layers]

    def client_state_digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._worker.store.digests(versions)

    @property
    def apart(self) -> bool:
        return self._worker.device.type != "cpu"

    def server_work(self, work: ServerWork[T]) -> T:
        return self._worker.server_work(work)

    def placement(self) -> dict[str, object]:
        return {"execution": "serial", "threads": torch.get_num_threads(), **gpu_of(self._worker.device)}

    def close(self) -> None:
        set_threads(self._before)
