"""A whole federation that fits on a page: 4 clients, 3 classes, 4 features, a network of about 50 numbers.

`TinyFederation` is the algorithm box in memory, without data sets, files or a backend. The contract of
`check_method` is checked on it, and a test of one's own can look at every number in it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.context import ClientData, Received, ServerContext, Spec
from raffed.core.messages import Broadcast, ClientState, ServerState, brought_back
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.round import (
    ClientRound,
    client_reported,
    client_round,
    client_rounds,
    reported,
    server_init,
    server_round,
)
from raffed.core.stacked.executor import stacked
from raffed.core.training.network import Network
from raffed.core.training.session import Participant, TrainingSession, one_by_one
from raffed.core.training.task import Augmentation
from raffed.models import BIAS
from raffed.models.last_layers import LastLayers, last_layers
from raffed.models.net import Net
from raffed.testing.contract import same_values

T = TypeVar("T")
CLASSES, FEATURES, WIDTH = 3, 4, 5
OWNED = ((0, 1), (1, 2), (0,), (0, 1, 2))  # client 2 holds one class, client 3 all of them
SIZES = (8, 10, 6, 11)  # with batches of 4 no batch has a single sample, which BatchNorm could not train on
PLAIN = Local(lr=0.1, momentum=0.9, weight_decay=1e-3, batch_size=4, epochs=1)


def module(norm: bool = False, bias: bool = True, seed: int = 0, dropout: float = 0.0) -> Net:
    """Return a network 4 -> 5 -> 3 with tanh: smooth, so that finite differences mean something."""
    with seeds.forked(seed):
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            flatten=nn.Flatten(1), fc=nn.Linear(FEATURES, WIDTH)
        )
        if norm:
            layers["norm"] = nn.BatchNorm1d(WIDTH)
        layers["act"] = nn.Tanh()
        if dropout:
            layers["dropout"] = nn.Dropout(dropout)
        return Net(nn.Sequential(layers), nn.Linear(WIDTH, CLASSES, bias=bias))


def network(norm: bool = False, bias: bool = True, seed: int = 0, dropout: float = 0.0) -> Network:
    """Return `module` as the kernel trains it."""
    return Network(module(norm, bias, seed, dropout))


def with_last_layers(net: Net, method: Method) -> Net:
    """Give a network the last layers that a method requires of it (`Method.network`), and return it."""
    bias, wanted = _required(method)
    if isinstance(bias, bool):
        net.set_head_bias(bias, method.name)
    wanted.put_into(net, 0)
    return net


def as_required(net: Network, method: Method) -> Network:
    """Return the network with the last layers that a method requires, or the network itself."""
    if not method.network:
        return net
    assert isinstance(net.module, Net)
    if net.module.last_layers == dataclasses.astuple(_required(method)[1]):
        return net
    return Network(with_last_layers(copy.deepcopy(net.module), method), net.device)


def _required(method: Method) -> tuple[Value, LastLayers]:
    common = dict(method.network)
    bias = common.pop(BIAS, None)
    make: Callable[..., LastLayers] = last_layers
    return bias, make(**common)


def client_data(n: int, owned: Sequence[int], seed: int) -> ClientData:
    """Return n samples that go round the owned classes: a corner for each class, and noise."""
    g = torch.Generator().manual_seed(seed)
    y = torch.tensor([owned[i % len(owned)] for i in range(n)])
    x = torch.randn(n, FEATURES, generator=g) + 2 * torch.eye(CLASSES, FEATURES)[y]
    return ClientData(x, y, torch.bincount(y, minlength=CLASSES))


def clients(owned: Sequence[Sequence[int]] = OWNED, sizes: Sequence[int] = SIZES) -> list[ClientData]:
    """Return the data of 4 clients; `owned` and `sizes` are the classes and the samples of each."""
    parts = zip(sizes, owned, strict=True)
    return [client_data(n, classes, 100 + client) for client, (n, classes) in enumerate(parts)]


@dataclass
class TinyFederation:
    """One federation in memory; `step` is one round of it.

    Attributes:
        method: The method.
        net: The network, which maps 4 features to 3 classes. It gets what the method requires of it.
        data: The samples of each client.
        local: How clients train.
        seed: Seed of every random choice.
        visits: How often a client is expected to take part.
        rounds: Number of rounds that the method is told of.
        augment: A random change of the inputs, or None.
        cohort: Whether the participants of a round are stacked.
        server: The server's state.
        client_states: Client → what it keeps, if it keeps anything.
        last: Client → its part of the last round.
    """

    method: Method
    net: Network = field(default_factory=network)
    data: list[ClientData] = field(default_factory=clients)
    local: Local = PLAIN
    seed: int = 0
    visits: int = 4
    rounds: int = 10
    augment: Augmentation | None = None
    cohort: bool = False

    def __post_init__(self) -> None:
        self.net = as_required(self.net, self.method)
        samples = sum(data.n for data in self.data)
        self.spec = Spec(
            len(self.data[0].class_counts),
            self.net.feature_dim,
            len(self.data),
            self.visits,
            self.rounds,
            samples,
            norms=self.net.norm_names,
            run_seed=self.seed,
        )
        self.arrange()
        self.server: ServerState = server_init(self.method, brought_back(self.net.initial), self.spec)
        self.client_states: dict[int, ClientState] = {}
        self.last: dict[int, ClientRound] = {}

    def arrange(self) -> None:
        """Make the training session again, after a change of how this federation trains."""
        execute = stacked if self.cohort else one_by_one
        self.session = TrainingSession(self.net, self.local, self.seed, self.spec, self.augment, execute)

    def drawn(self) -> tuple[int, ...]:
        """Return half of the clients, ascending, as the seed draws them for the present round."""
        order = seeds.rng(self.seed, "sampling", self.server.round).permutation(len(self.data))
        return tuple(sorted(int(c) for c in order[: max(1, len(self.data) // 2)]))

    def visit(
        self, client: int, broadcast: Broadcast | None = None, client_state: ClientState | None = None
    ) -> ClientRound:
        """Return one client's round, which is kept nowhere."""
        sent = broadcast or self.server.broadcast()
        return client_round(
            self.method,
            sent,
            client_state or self.client_states.get(client),
            self.data[client],
            self.session,
            client,
        )

    def step(self, participants: Sequence[int] | None = None) -> dict[int, ClientRound]:
        """Execute one round with these participants, trained and added up in the order given.

        Without participants, `drawn` says who takes part.
        """
        chosen = tuple(self.drawn() if participants is None else participants)
        counts = [self.data[c].class_counts for c in chosen]
        weights = self.method.mean.weights([self.data[c].n for c in chosen], lambda: counts)
        accumulator, sent = UploadAccumulator(self.method.keeps_uploads), self.server.broadcast()
        members = [
            Participant(client, self.client_states.get(client), self.data[client]) for client in chosen
        ]
        together = [members] if self.cohort else [[participant] for participant in members]
        rounds = [
            visit for group in together for visit in client_rounds(self.method, sent, group, self.session)
        ]
        done = dict(zip(chosen, rounds, strict=True))
        for client, weight in zip(chosen, weights, strict=True):
            accumulator.add(client, weight, done[client].upload, "test")
        for client, visit in done.items():
            if not visit.client_state.empty:
                self.client_states[client] = visit.client_state
            # As a run does, which refuses what is not a number
            client_reported(self.method.hooks["report_client"], visit)
        self.receive(*accumulator.finish(self.server), chosen)
        self.last = done
        return done

    def receive(
        self, mean_w: Params, mean_b: Params, received: dict[str, Received], chosen: Sequence[int]
    ) -> None:
        """Let the server make its next model from what was added up."""
        samples = sum(self.data[c].n for c in chosen)
        shape = self.data[0].x.shape[1:]
        public = _shaped(torch.randn(12, FEATURES, generator=torch.Generator().manual_seed(7)), shape)
        told = self.spec, self.server.round, len(chosen), samples, received, self.seed, mean_b
        labelled = client_data(12, range(CLASSES), 8)
        net = lambda state, x: self.net.differentiable(state, x.to(state.w.dtype))  # noqa: E731
        k = ServerContext(*told, net, public, (_shaped(labelled.x, shape), labelled.y))
        self.server = server_round(self.method, self.server, mean_w, mean_b, k)
        reported(self.method.hooks["report"], self.method.server, self.server)

    def run(self, rounds: int, participants: Sequence[int] | None = None) -> Self:
        """Execute several rounds and return this federation."""
        for _ in range(rounds):
            self.step(participants)
        return self

    def everything(self) -> list[Tensor]:
        """Return every tensor of the server and of all clients' states, in a fixed order."""
        return [
            *leaves(self.server),
            *(t for c in sorted(self.client_states) for t in leaves(self.client_states[c])),
        ]


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the server's images x [n, 4] in the shape of the clients' images, if these are as large."""
    return x.view(len(x), *shape) if math.prod(shape) == FEATURES else x


def leaves(record: T) -> list[Tensor]:
    """Return the tensors inside any record, in order."""
    return [leaf for leaf in pytree.tree_leaves(record) if isinstance(leaf, Tensor)]


def same_bits(a: T, b: T) -> bool:
    """Return whether two records hold the same tensors bit for bit (NaN equals NaN)."""
    return same_values(leaves(a), leaves(b))


def tiny_federation(
    method: Method, *, norm: bool = False, seed: int = 0, local: Local = PLAIN, stacked: bool = False
) -> TinyFederation:
    """Make a federation of 4 clients in memory, for looking at a method's numbers.

    Args:
        method: The method, as its factory returns it.
        norm: Whether the network has a BatchNorm layer.
        seed: Seed of every random choice.
        local: How clients train.
        stacked: Whether the participants of a round are stacked.

    Returns:
        A federation before its first round. `step()` executes one; `server`, `client_states` and `last` hold
        what came of it.

    Example:
        >>> from raffed.methods.fedavg import fedavg
        >>> tiny = tiny_federation(fedavg()).run(3)
        >>> tiny.server.round
        3
    """
    return TinyFederation(method, net=network(norm), seed=seed, local=local, cohort=stacked)
