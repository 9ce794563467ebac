"""The survey after a round: score the models of all clients, also of those that did not take part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from raffed.core.aggregation.exact_sums import PointSum
from raffed.core.messages import Broadcast, ServerState
from raffed.core.params import State
from raffed.results.row import Row
from raffed.runs.metric_rows import survey_rows, unseen_rows
from raffed.runtime.api import Backend, RoundOrder
from raffed.runtime.setup import Setup


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
        clients = tuple(self._setup.trainable)
        kept = tuple(versions.get(client, 0) for client in clients)
        order = _order(server, clients, kept)
        oracle = not self._setup.method.has_global
        found = self._backend.survey(order, self.oracle(server, versions, last) if oracle else whole)
        return survey_rows(server.round, found, oracle, [version > 0 for version in kept])

    def unseen_rows(self, server: ServerState, whole: Broadcast | None) -> list[Row]:
        """Return the rows about the clients that never train: each is scored as one that comes new.

        Args:
            server: The server's state after the round.
            whole: The server's model, or None if the method has no global model.
        """
        clients = self._setup.unseen
        if not clients:
            return []
        order = _order(server, clients, (0,) * len(clients))
        return unseen_rows(server.round, self._backend.survey(order, whole))

    def oracle(self, server: ServerState, versions: Mapping[int, int], last: RoundOrder) -> Broadcast | None:
        """Return the server's layers, completed by the mean of the layers that the last participants keep.

        Only the simulator can form this model (docs/papers/gldp.md §7). It is None if nothing is shared, if
        buffers stay with the clients, if no head is used, or if no upload was counted.
        """
        split, personal = self._setup.method.split, self._setup.method.personal
        headless = personal is not None and personal.predicts
        if split.personal == "all" or split.buffers == "local" or headless or not any(last.weights):
            return None
        kept, weights = tuple(versions[client] for client in last.participants), last.weights
        if self._setup.config.clock.asynchronous:  # the weights of stale uploads do not add up to 1
            weights = tuple(weight / math.fsum(weights) for weight in weights)
        total = PointSum()
        for part in self._backend.own_layers(replace(last, versions=kept, weights=weights)):
            total.merge(part)
        own = total.value(split.own(self._initial.w, self._norms))
        return server.replace(w=server.w.joined(own, self._initial.w.names)).broadcast()


def _order(server: ServerState, clients: tuple[int, ...], versions: tuple[int, ...]) -> RoundOrder:
    """Return the order to score clients one by one. Their weights are 0, since nothing is uploaded."""
    stacks = tuple((client,) for client in clients)
    return RoundOrder(server.broadcast(), clients, (0.0,) * len(clients), versions, True, stacks)
