"""A federation in one process, whose models can be examined after every round.

The rounds are the kernel's (client_rounds, UploadAccumulator, server_round), with the random streams of a run
of the same seed. Left out is what a run adds: actors, client states on disk, checkpoints and metric rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from raffed import ClientData, Federation, Local, Method, ServerContext, Spec, State
from raffed.core import seeds
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.messages import ClientState, ServerState, brought_back
from raffed.core.round import ClientRound, client_rounds, joined, server_init, server_round
from raffed.core.training.network import Network
from raffed.core.training.session import Participant, TrainingSession
from raffed.core.training.task import Augmentation
from raffed.data.preparation import Transform
from raffed.data.transforms import augment_by, augment_draws


class OpenFederation:
    """A method on the clients' data.

    `step` executes a round. `server` and `client_states` hold the states of the server and of the clients.
    """

    def __init__(
        self,
        method: Method,
        net: Network,
        data: Sequence[ClientData],
        local: Local,
        seed: int,
        plan: Federation,
        transform: Transform,
    ) -> None:
        self.method, self.net, self.plan, self.seed = method, net, plan, seed
        self.data = [ClientData(net.arranged(client.x), client.y, client.class_counts) for client in data]
        visits = max(plan.participants(len(data)) * plan.rounds // len(data), 1)
        samples = sum(client.n for client in data)
        sizes = len(data[0].class_counts), net.feature_dim, len(data), visits, plan.rounds, samples
        spec = Spec(*sizes, norms=net.norm_names, run_seed=seed)
        augmentation = Augmentation(
            lambda n, g: augment_draws(n, transform, g), lambda x, draws: augment_by(x, transform, draws)
        )
        self.session = TrainingSession(net, local, seed, spec, augmentation if transform.augments else None)
        self.server: ServerState = server_init(method, brought_back(net.initial), spec)
        self.client_states: dict[int, ClientState] = {}

    def participants(self) -> list[int]:
        """Return the participants of the next round in ascending order, as in a run of this seed."""
        order = seeds.rng(self.seed, "sampling", self.server.round).permutation(len(self.data))
        return sorted(int(client) for client in order[: self.plan.participants(len(self.data))])

    def model(self, client: int) -> State:
        """Return the model from which a client would start the next round.

        It is the aggregated model, completed by the client's own layers.
        """
        return joined(self.method.split, self.server.broadcast(), self.client_states.get(client), self.net)

    def step(self) -> dict[int, ClientRound]:
        """Execute one round and return client → what it did."""
        chosen, sent = self.participants(), self.server.broadcast()
        sizes = [self.data[client].n for client in chosen]
        weights = self.method.mean.weights(sizes, lambda: [self.data[party].class_counts for party in chosen])
        accumulator, done = UploadAccumulator(self.method.keeps_uploads), {}
        for client, weight in zip(chosen, weights, strict=True):
            participant = Participant(client, self.client_states.get(client), self.data[client])
            (done[client],) = client_rounds(self.method, sent, [participant], self.session)
            accumulator.add(
                client, weight, done[client].upload, f"{self.method.name}, round {self.server.round + 1}"
            )
        for client, client_round in done.items():
            self.client_states[client] = client_round.client_state
        mean_w, mean_b, received = accumulator.finish(self.server)
        told = (self.session.spec, self.server.round, len(chosen), sum(sizes), received, self.seed, mean_b)
        self.server = server_round(
            self.method, self.server, mean_w, mean_b, ServerContext(*told, self.net.differentiable)
        )
        return done


def parts(
    y: Tensor, owned: Sequence[Sequence[int]], seed: int, local_test: float
) -> list[tuple[Tensor, Tensor]]:
    """Return the (train, test) indices of clients that hold whole classes.

    Each client's images are shuffled, and the first share is for testing.
    """
    indices = []
    for client, classes in enumerate(owned):
        index = [i for i, label in enumerate(y.tolist()) if label in set(classes)]
        order = seeds.rng(seed, "split", 1, client).permutation(len(index))
        mixed = y.new_tensor(index)[y.new_tensor(order.tolist())]
        cut = max(int(local_test * len(index)), 1)
        indices.append((mixed[cut:], mixed[:cut]))
    return indices
