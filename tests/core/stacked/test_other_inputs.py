"""Inputs of any shape and type: sequences of ids, tables and series train stacked as they train alone.

In float64 a round agrees to 1e-9, the tolerance of the contract (tests/contract/test_cohort.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from raffed.core import seeds
from raffed.core.context import ClientData
from raffed.core.training.network import Network
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.models.net import Net
from tests.contract.test_cohort import agree_in_all
from tests.contract.test_objectives import as_double
from tests.params import one_in
from tests.tiny import CLASSES, OWNED, SIZES, Tiny

WORDS, LENGTH, WIDTH = 11, 6, 4


class MeanOfEmbeddings(nn.Module):
    """Ids [B, L] to the mean of their embeddings [B, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.table(x).mean(1))


class Attention(nn.Module):
    """Ids [B, L] to the mean over one layer of self-attention [B, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        return self.mix(h, h, h, need_weights=False)[0].mean(1)


class Recurrent(nn.Module):
    """Ids [B, L] to the last state of a recurrent layer [B, D]."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(WORDS, WIDTH), kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.table(x))[0][:, -1]


def ids(g: torch.Generator, n: int) -> Tensor:
    return torch.randint(0, WORDS, (n, LENGTH), generator=g)


def table(g: torch.Generator, n: int) -> Tensor:
    return torch.randn(n, LENGTH, generator=g, dtype=torch.float64)


def series(g: torch.Generator, n: int) -> Tensor:
    return torch.randn(n, 3, LENGTH, generator=g, dtype=torch.float64)


BODIES: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator, int], Tensor]]] = {
    "mean of embeddings": (MeanOfEmbeddings, ids),
    "bag of embeddings": (lambda: nn.EmbeddingBag(WORDS, WIDTH, mode="sum"), ids),
    "attention": (Attention, ids),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(LENGTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh()),
        table,
    ),
    "group norm": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool1d(1), nn.Flatten(1)),
        series,
    ),
}


RECURRENT: dict[str, type[nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}
# torch computes these layers client by client inside vmap, and says so
slowly = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


def net_of(body: Callable[[], nn.Module]) -> Network:
    with seeds.forked(0):
        return Network(Net(body(), nn.Linear(WIDTH, CLASSES)).double())


def clients(inputs: Callable[[torch.Generator, int], Tensor]) -> list[ClientData]:
    made = []
    for i, (n, owned) in enumerate(zip(SIZES, OWNED, strict=True)):
        y = torch.tensor([owned[j % len(owned)] for j in range(n)])
        x = inputs(torch.Generator().manual_seed(i), n)
        made.append(ClientData(x, y, torch.bincount(y, minlength=CLASSES)))
    return made


@slowly
@pytest.mark.parametrize("method", one_in(3, ["fedavg", "map", "fedrep", "fedproto"]))
@pytest.mark.parametrize("name", BODIES)
def test_a_stack_trains_on_any_inputs_as_each_client_alone(name: str, method: str) -> None:
    pair, (body, inputs) = [], BODIES[name]
    for cohort in (False, True):
        one = Tiny(build_method(method), net=net_of(body), data=clients(inputs), cohort=cohort)
        one.server = as_double(one.server)
        before = copy.deepcopy(one.net.initial.w["head.weight"])
        one.step([0, 1, 2, 3])
        assert not torch.equal(one.last[0].trained.w["head.weight"], before)
        pair.append(one)
    agree_in_all(*pair)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_train_alone_and_are_refused_in_a_stack(name: str) -> None:
    tiny = Tiny(build_method("map"), net=net_of(lambda: Recurrent(RECURRENT[name])), data=clients(ids))
    tiny.server = as_double(tiny.server)
    before = tiny.server.w
    tiny.step([0, 1, 2, 3])
    assert all(not torch.equal(before[n], tiny.last[3].trained.w[n]) for n in before.names)
    tiny.cohort = True
    tiny.arrange()
    with pytest.raises(UsageError, match=f"a layer of type {name.upper()}; use cohort = 0"):
        tiny.step([0, 1, 2, 3])
