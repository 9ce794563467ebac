"""What a module of one's own would do without a sign of it: right numbers, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import ClientData
from raffed.core.method import Method
from raffed.core.training.network import Network
from raffed.core.training.sgd import batch_stream
from raffed.errors import UsageError
from raffed.models.own.laws import Laws
from raffed.models.own.wrapping import ModelInputs, as_net
from raffed.testing.federation import TinyFederation

ROW, IDS = ModelInputs((4,)), ModelInputs((5,), "int64")
PADDING = 2


class Parts(nn.Module):
    """A body and a head, with room for what a test adds to them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


class InAList(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([self.body, self.head])


class Cooled(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (2.0 if self.training else 1.0)


class Aided(Parts):
    def forward(self, x: Tensor) -> Any:
        scores = super().forward(x)
        return (scores, scores) if self.training else scores


class Words(nn.Module):
    def __init__(self, **args: object) -> None:
        super().__init__()
        self.e, self.fc = nn.Embedding(12, 6, **args), nn.Linear(6, 3)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.e(x).mean(1))
        return scores


class OwnPadding(Words):
    """Calls torch's function, which nothing can correct in a stack."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(F.embedding(x, self.e.weight, padding_idx=0).mean(1))
        return scores


@pytest.mark.parametrize(
    ("make", "inputs", "words"),
    [
        (InAList, ROW, "its head head .* is registered a second time"),
        (Cooled, ROW, "are not the output of its layer 'head'"),
        (Aided, ROW, "returns a tuple"),
        (lambda: Words(max_norm=0.5), IDS, "its layer e has max_norm, which changes its weights"),
        (lambda: Words(sparse=True), IDS, "its layer e has sparse gradients"),
    ],
)
def test_a_module_that_would_be_trained_as_something_else_is_refused(
    make: Callable[[], nn.Module], inputs: ModelInputs, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        as_net(make(), in_shape=inputs.shape, dtype=inputs.dtype)


def test_the_look_at_the_training_mode_changes_no_statistics_and_no_mode() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    net = as_net(module, in_shape=(4,))
    norm = net.body[1]  # type: ignore[index]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert not norm.running_mean.any()
    assert not norm.training


def _texts() -> list[ClientData]:
    g = torch.Generator().manual_seed(1)
    found = []
    for n in (8, 10, 6, 11):
        x = torch.randint(0, 12, (n, 5), generator=g)
        x[:, 3:] = PADDING
        found.append(ClientData(x, x[:, 0] % 3, torch.bincount(x[:, 0] % 3, minlength=3)))
    return found


@pytest.mark.parametrize("stacked", [False, True])
def test_padding_gets_no_gradient_alone_and_in_a_stack(stacked: bool) -> None:
    """The row of the padding begins at 0 and stays there, as in plain torch, whose step is done here too."""
    local = Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=4, epochs=1)
    data = _texts()
    torch.manual_seed(0)
    net = as_net(Words(padding_idx=PADDING), in_shape=IDS.shape, dtype=IDS.dtype)
    own = Network(net, constants=net.constants, kernels=net.rewritable)
    tiny = TinyFederation(Method("Mine"), net=own, data=data, local=local, cohort=stacked)
    tiny.step((0, 1))
    assert not tiny.server.w["body.e.weight"][PADDING].any()
    means = torch.zeros(12, 6)
    for client, share in ((0, 8 / 18), (1, 10 / 18)):
        torch.manual_seed(0)
        module = Words(padding_idx=PADDING)
        weights, one = list(module.parameters()), data[client]
        stream = seeds.generator(0, "batches", 0, client, 0)
        for index in batch_stream(one.n, local.steps(one.n, None), local, stream):
            loss = F.cross_entropy(module(one.x[index]), one.y[index])
            for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.data -= 0.1 * slope
        means += share * module.e.weight.detach()
    torch.testing.assert_close(tiny.server.w["body.e.weight"], means, rtol=1e-5, atol=1e-6)


def test_a_function_of_torch_that_forgets_the_padding_in_a_stack_is_refused_there() -> None:
    net = as_net(OwnPadding(), in_shape=IDS.shape, dtype=IDS.dtype)
    laws = Laws(net, "Mine", IDS, 3)
    laws.check(0)
    with pytest.raises(UsageError, match=r"other gradients of body\.e\.weight when stacked; use cohort = 0"):
        laws.check(2)
