"""A whole federation that fits on a page: 4 clients, 3 classes, 4 features, a network of about 50 numbers.

`Tiny` is the algorithm box in memory, `client_round -> Fold -> server_round`, without data sets, files or a
runtime.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.aggregation.accumulator import UploadAccumulator
from raffed.core.context import ClientData, Context, Forward, Received, ServerContext, Spec
from raffed.core.messages import Broadcast, ClientState, ServerState
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.round import ClientRound, client_round, client_rounds, server_init, server_round
from raffed.core.stacked.executor import stacked
from raffed.core.training.network import Network
from raffed.core.training.sequential import one_by_one
from raffed.core.training.session import Participant, TrainingSession
from raffed.core.training.task import Augmentation
from raffed.core.transfer import brought_back
from raffed.methods import METHODS
from raffed.models.net import Net

CLASSES, FEATURES, WIDTH = 3, 4, 5
OWNED = ((0, 1), (1, 2), (0,), (0, 1, 2))  # client 2 holds one class, client 3 all of them
SIZES = (8, 10, 6, 11)  # with batches of 4 no batch has a single sample, which BatchNorm could not train on
over_methods = pytest.mark.parametrize("name", METHODS)
NOISY = Augmentation(  # one number an image, added to all of it
    lambda batch, g: torch.randn(batch, generator=g),
    lambda x, drawn: x + 0.1 * drawn.to(x.device).view(-1, *(1,) * (x.dim() - 1)),
)
PLAIN = Local(lr=0.1, momentum=0.9, weight_decay=1e-3, batch_size=4, epochs=1)


def module(norm: bool = False, bias: bool = True, seed: int = 0, dropout: float = 0.0) -> Net:
    """4 -> 5 -> 3 with tanh: smooth, so that finite differences mean something. Plain, it is a
    `LinearChain` (core/kernels/linear_chain.py).
    """
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


def network(norm: bool = False, **kwargs: Any) -> Network:
    return Network(module(norm, **kwargs))


def client_data(n: int, owned: Sequence[int], seed: int) -> ClientData:
    """n samples that go round the owned classes; x = a class's corner + noise."""
    g = torch.Generator().manual_seed(seed)
    y = torch.tensor([owned[i % len(owned)] for i in range(n)])
    x = torch.randn(n, FEATURES, generator=g) + 2 * torch.eye(CLASSES, FEATURES)[y]
    return ClientData(x, y, torch.bincount(y, minlength=CLASSES))


def clients(owned: Sequence[Sequence[int]] = OWNED, sizes: Sequence[int] = SIZES) -> list[ClientData]:
    return [client_data(n, own, 100 + i) for i, (n, own) in enumerate(zip(sizes, owned, strict=True))]


@dataclass
class Tiny:
    """One federation; `step` is one round of it. `participants` are drawn (2 of 4) unless given."""

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
        samples = sum(one.n for one in self.data)
        self.spec = Spec(
            len(self.data[0].class_counts),
            self.net.feature_dim,
            len(self.data),
            self.visits,
            self.rounds,
            samples,
        )
        self.arrange()
        self.server: ServerState = server_init(self.method, brought_back(self.net.initial), self.spec)
        self.vaults: dict[int, ClientState] = {}
        self.last: dict[int, ClientRound] = {}

    def arrange(self) -> None:
        """The session, after a change of how this federation trains."""
        execute = stacked if self.cohort else one_by_one
        self.session = TrainingSession(self.net, self.local, self.seed, self.spec, self.augment, execute)

    def drawn(self) -> tuple[int, ...]:
        """Half of the clients, ascending."""
        order = seeds.rng(self.seed, "sampling", self.server.round).permutation(len(self.data))
        return tuple(sorted(int(c) for c in order[: max(1, len(self.data) // 2)]))

    def visit(
        self, client: int, broadcast: Broadcast | None = None, vault: ClientState | None = None
    ) -> ClientRound:
        """One client's round, kept nowhere."""
        sent = broadcast or self.server.broadcast()
        return client_round(
            self.method, sent, vault or self.vaults.get(client), self.data[client], self.session, client
        )

    def step(self, participants: Sequence[int] | None = None) -> dict[int, ClientRound]:
        """One round with these participants, trained and folded in the order given."""
        chosen = tuple(self.drawn() if participants is None else participants)
        weights = self.method.mean.weights([self.data[c].n for c in chosen])
        fold, sent = UploadAccumulator(self.method.server.each), self.server.broadcast()
        guests = [Participant(client, self.vaults.get(client), self.data[client]) for client in chosen]
        together = [guests] if self.cohort else [[guest] for guest in guests]
        rounds = [one for some in together for one in client_rounds(self.method, sent, some, self.session)]
        done = dict(zip(chosen, rounds, strict=True))
        for client, weight in zip(chosen, weights, strict=True):
            fold.add(client, weight, done[client].upload, "test")
        for client, one in done.items():
            if not one.vault.empty:
                self.vaults[client] = one.vault
        self.receive(*fold.finish(self.server), chosen)
        self.last = done
        return done

    def receive(
        self, mean_w: Params, mean_b: Params, received: dict[str, Received], chosen: Sequence[int]
    ) -> None:
        samples = sum(self.data[c].n for c in chosen)
        public = torch.randn(12, FEATURES, generator=torch.Generator().manual_seed(7))
        told = self.spec, self.server.round, len(chosen), samples, received, self.seed, mean_b
        own = client_data(12, range(CLASSES), 8)
        net = lambda state, x: self.net.differentiable(state, x.to(state.w.dtype))  # noqa: E731
        k = ServerContext(*told, net, public, (own.x, own.y))
        self.server = server_round(self.method, self.server, mean_w, mean_b, k)

    def run(self, rounds: int, participants: Sequence[int] | None = None) -> Tiny:
        for _ in range(rounds):
            self.step(participants)
        return self

    def everything(self) -> list[Tensor]:
        """Every tensor of the server and of all vaults, in a fixed order."""
        return [*leaves(self.server), *(t for c in sorted(self.vaults) for t in leaves(self.vaults[c]))]

    def context(self, client: int, slot: str, **changes: Any) -> Context:
        """The context of one ingredient as it was after the last round's training."""
        return self.last[client].views[slot].replace(**changes)


def leaves(record: Any) -> list[Tensor]:
    """The tensors inside any record, in order."""
    return [leaf for leaf in pytree.tree_leaves(record) if isinstance(leaf, Tensor)]


def same_bits(a: Any, b: Any) -> bool:
    """Whether two records hold the same tensors bit for bit (NaN equals NaN)."""
    left, right = leaves(a), leaves(b)
    return len(left) == len(right) and all(
        x.dtype == y.dtype
        and x.shape == y.shape
        and x.numpy(force=True).tobytes() == y.numpy(force=True).tobytes()
        for x, y in zip(left, right, strict=True)
    )


def bare_context(**changes: Any) -> Context:
    """A context for calling one hook by hand: 3 classes all present, no network, memories as given."""
    nothing = State(Params({}), Params({}))
    usual: dict[str, Any] = {
        "spec": Spec(CLASSES, WIDTH, 4, 4),
        "run_seed": 0,
        "round": 0,
        "client": 0,
        "class_counts": torch.ones(CLASSES, dtype=torch.int64),
        "initial": nothing,
        "start": nothing,
        "state": nothing,
        "net": None,
        "features": None,
        "reestimate": lambda state: state,
    }
    return Context(**{"mine": None, "server": None, **usual, **changes})


def server_context(**changes: Any) -> ServerContext:
    """What a server rule is told, for calling one by hand: the first round of 4 clients, all of them
    there, no messages.
    """
    usual: dict[str, Any] = {
        "spec": Spec(CLASSES, WIDTH, 4, 4),
        "round": 0,
        "count": 4,
        "samples": 35,
        "received": {},
    }
    return ServerContext(**{**usual, **changes})


def forward(z: Tensor, y: Tensor, logits: Tensor | None = None, w: Params | None = None) -> Forward:
    """A forward pass made by hand."""
    return Forward(z, y, z, z if logits is None else logits, Params({}) if w is None else w)


def tree_stack(trees: Sequence[Any]) -> Any:
    """Records of equal shape stacked leaf by leaf, for vmap."""
    flat = [pytree.tree_flatten(tree) for tree in trees]
    columns = zip(*(values for values, _ in flat), strict=True)
    return pytree.tree_unflatten([torch.stack(list(column)) for column in columns], flat[0][1])
