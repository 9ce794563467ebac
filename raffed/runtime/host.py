"""Clients hosted in one process: their data, their vaults, one scratch network. The body of every actor, without Ray."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.core import seeds
from raffed.core.boundary import Broadcast
from raffed.core.context import ClientData
from raffed.core.evaluate import Score, evaluate
from raffed.core.fold import Fold, Partial
from raffed.core.method import Spec
from raffed.core.network import Network
from raffed.core.params import State
from raffed.core.round import EVAL_CHUNK, ClientRound, Session, client_round, joined
from raffed.data.transforms import augment, prepare
from raffed.models import build
from raffed.runtime.base import Report, Share, Tally
from raffed.runtime.setup import Setup
from raffed.runtime.vault_store import VaultStore


def make_spec(setup: Setup, feature_dim: int) -> Spec:
    """What ingredients may know; expected visits Q·T by integer arithmetic (0.29 · 100 would lose one)."""
    clients, federation = setup.partition.num_clients, setup.config.federation
    visits = max(federation.participants(clients) * federation.rounds // clients, 1)
    return Spec(setup.dataset.num_classes, feature_dim, clients, visits)


def make_network(setup: Setup, device: torch.device | str = "cpu") -> Network:
    """The run's network with its initial weights, the same on every host."""
    model, config = setup.config.model, setup.config
    value = seeds.seed(config.seed, "weights")
    return Network(build(model.name, setup.input_shape, setup.dataset.num_classes, value, **model.args), device)


class Host:
    """Trains and scores clients, one after the other. Prepared data are kept for the clients at `home` (default: all)."""

    def __init__(
        self, setup: Setup, vaults: Path | None, device: torch.device | str = "cpu", *, home: frozenset[int] | None = None
    ) -> None:
        self.setup, self.method = setup, setup.method
        self.device = torch.device(device)
        self.store = VaultStore(vaults, keeps=self.method.keeps_state)
        self.transform = setup.transform
        self.net = make_network(setup, self.device)
        transform = self.transform
        bend = (lambda x, g: augment(x, transform, g)) if transform.augments else None
        spec = make_spec(setup, self.net.feature_dim)
        self.session = Session(self.net, setup.config.local, setup.config.seed, spec, bend)
        self._home = frozenset(range(setup.partition.num_clients)) if home is None else home
        self._data: dict[int, ClientData] = {}
        self._parts: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        self._test: dict[int, tuple[Tensor, Tensor]] = {}

    def warm_up(self) -> None:
        """Load the home clients' data, and let torch do what it does only once, before the first round waits for it."""
        for client in sorted(self._home):
            self._client(client)
        data = self._client(min(self._home))
        f = self.net.forward(data.x[:2], data.y[:2])
        torch.autograd.grad(f.logits.sum(), list(self.net.leaves("all").values()), materialize_grads=True)
        self.net.load(self.net.initial)

    def train(self, broadcast: Broadcast, share: Share) -> tuple[Partial, list[Report]]:
        """A round of these clients, folded; their reports in the same order."""
        fold, reports = Fold(), []
        where = f"{self.method.name}, round {broadcast.round + 1}"  # counted from 1, as in the rows
        down = broadcast.nbytes()
        for client, weight, version in share.rows:
            began = time.perf_counter()
            vault = self.store.get(client, version)
            done = client_round(self.method, broadcast, vault, self._client(client), self.session, client)
            scores = self._score(client, done) if share.measure else {}
            validation = self._validate(client, done) if share.measure else None
            self.store.put(client, broadcast.round + 1, done.vault)
            fold.add(client, weight, done.upload, where)
            spent = time.perf_counter() - began
            n = len(self.setup.partition.train[client])
            sent = done.upload.nbytes()
            reports.append(Report(client, n, done.loss, done.steps, sent, down, spent, scores, validation))
        return fold.export(), reports

    def evaluate(self, broadcast: Broadcast, chunks: range) -> dict[int, Tally]:
        """Chunk → tally of the global model on these chunks (see `chunks`)."""
        state = joined(self.method, broadcast, None, self.net)
        return {chunk: self._tally(state, *self._test_chunk(chunk)) for chunk in chunks}

    def _score(self, client: int, done: ClientRound) -> dict[str, Tally]:
        if not len(self.setup.partition.test[client]):
            return {}
        x, y = self._local_part("test", client)
        states = {"global": done.start, "local": done.trained, "personal": done.personal_state(self.method)}
        scores = {"global": self._tally(states["global"], x, y), "local": self._tally(states["local"], x, y)}
        same = states["personal"] is states["local"]
        return {**scores, "personal": scores["local"] if same else self._tally(states["personal"], x, y)}

    def _validate(self, client: int, done: ClientRound) -> Tally | None:
        if not len(self.setup.partition.local("val", client)):
            return None
        return self._tally(done.personal_state(self.method), *self._local_part("val", client))

    def _tally(self, state: State, x: Tensor, y: Tensor) -> Tally:
        score: Score = evaluate(self.net, state, x, y, self.setup.dataset.num_classes, EVAL_CHUNK)
        return Tally(tuple(score.correct.tolist()), tuple(score.total.tolist()), score.loss)

    def _client(self, client: int) -> ClientData:
        if client in self._data:
            return self._data[client]
        x, y = self._samples(self.setup.partition.train[client])
        made = ClientData(x, y, torch.bincount(y, minlength=self.setup.dataset.num_classes))
        if client in self._home:
            self._data[client] = made
        return made

    def _local_part(self, role: str, client: int) -> tuple[Tensor, Tensor]:
        if (role, client) in self._parts:
            return self._parts[role, client]
        made = self._samples(self.setup.partition.local(role, client))
        if client in self._home:
            self._parts[role, client] = made
        return made

    def _samples(self, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        dataset = self.setup.dataset
        x = prepare(dataset.x_train[index], self.transform, dataset.max_value)
        return x.to(self.device), torch.from_numpy(dataset.y_train[index]).to(self.device)

    def _test_chunk(self, chunk: int) -> tuple[Tensor, Tensor]:
        if chunk not in self._test:
            tests = chunks(self.setup)
            images, labels = self.setup.test_set() if chunk in tests else self.setup.validation_set()
            first = chunk if chunk in tests else chunk - len(tests)
            part = slice(first * EVAL_CHUNK, (first + 1) * EVAL_CHUNK)
            x = prepare(images[part].copy(), self.transform, self.setup.dataset.max_value)
            self._test[chunk] = x.to(self.device), torch.tensor(labels[part], device=self.device)
        return self._test[chunk]


def chunks(setup: Setup, part: str = "test") -> range:
    """The numbers of the chunks of the global test set, or those after them, of the clients' validation parts ("val")."""
    tests = -(-len(setup.test_set()[1]) // EVAL_CHUNK)
    held = sum(len(own) for own in setup.partition.val)
    return range(tests) if part == "test" else range(tests, tests - (-held // EVAL_CHUNK))


def total(tallies: dict[int, Tally]) -> Tally:
    """The chunks' tallies added in chunk order, whoever counted them."""
    ordered = [tallies[chunk] for chunk in sorted(tallies)]
    correct = tuple(map(sum, zip(*(t.correct for t in ordered), strict=True)))
    count = tuple(map(sum, zip(*(t.total for t in ordered), strict=True)))
    return Tally(correct, count, sum(t.loss for t in ordered))
