"""Networks of linear layers without modules: the bits of the modules one by one, each client's own
numbers in a stack.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from raffed.core.kernels import optimise
from raffed.core.kernels.linear import LinearChain, chain_of
from raffed.core.losses import cross_entropy
from raffed.core.training.network import Network
from raffed.methods import build_method
from raffed.models.net import Net
from tests.contract.test_cohort import agree_in_all, pair
from tests.tiny import Tiny, same_bits

CLIENTS, BATCH = 3, 5


def deep(bias: bool = True, act: type[nn.Module] = nn.Tanh) -> Net:
    """12 -> 7 -> 6 -> 4 in nested Sequentials, the last layer of the body linear, as where there is a
    projection.
    """
    torch.manual_seed(3)
    encoder = nn.Sequential(OrderedDict(flatten=nn.Flatten(1), fc1=nn.Linear(12, 7, bias=bias), act1=act()))
    body = nn.Sequential(OrderedDict(encoder=encoder, projection=nn.Linear(7, 6, bias=bias)))
    return Net(body, nn.Linear(6, 4, bias=bias))


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, 3, 2, 2, generator=torch.Generator().manual_seed(1))


def gradients(out: tuple[Tensor, Tensor], by: Sequence[Tensor]) -> list[Tensor]:
    """Of a sum of the logits and features with unequal weights."""
    total = sum((t * torch.linspace(1.0, 2.0, t.numel(), dtype=t.dtype).view_as(t)).sum() for t in out)
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, list(by)))


def chain(module: nn.Module) -> LinearChain:
    found = chain_of(module)
    assert found is not None
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.Sigmoid])
def test_one_batch_has_the_bits_of_the_modules(act: type[nn.Module], bias: bool) -> None:
    module, x = deep(bias, act), images(BATCH)
    by = list(module.parameters())
    plain, chained = module(x), chain(module).alone(dict(module.named_parameters()), x)
    assert same_bits(plain, chained)
    assert same_bits(gradients(plain, by), gradients(chained, by))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.Sigmoid])
def test_a_stack_is_each_client_under_its_own_weights(act: type[nn.Module], bias: bool) -> None:
    module, x = deep(bias, act).double(), images(CLIENTS, BATCH).double()
    names = [name for name, _ in module.named_parameters()]
    w = {
        name: torch.randn(CLIENTS, *p.shape).double().requires_grad_()
        for name, p in module.named_parameters()
    }
    logits, z = chain(module).stacked(w, x)
    assert logits.shape == (CLIENTS, BATCH, 4)
    assert z.shape == (CLIENTS, BATCH, 6)
    slopes = torch.autograd.grad((logits.sin().sum() + z.square().sum()), list(w.values()))
    for client in range(CLIENTS):
        mine = {name: w[name][client].detach().requires_grad_() for name in names}
        own_logits, own_z = chain(module).alone(mine, x[client])
        torch.testing.assert_close(logits[client], own_logits)
        torch.testing.assert_close(z[client], own_z)
        own = torch.autograd.grad((own_logits.sin().sum() + own_z.square().sum()), list(mine.values()))
        for ours, alone in zip(slopes, own, strict=True):
            torch.testing.assert_close(ours[client], alone)


def test_an_activation_that_stands_in_two_places_acts_in_both() -> None:
    act = nn.Tanh()
    body = nn.Sequential(nn.Flatten(1), nn.Linear(12, 7), act, nn.Linear(7, 6), act)
    module, x = Net(body, nn.Linear(6, 4)), images(BATCH)
    assert same_bits(module(x), chain(module).alone(dict(module.named_parameters()), x))


class Doubled(nn.Linear):
    """A layer that chain.py does not know, though it is a Linear."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


@pytest.mark.parametrize(
    "body",
    [
        [nn.Linear(12, 6)],  # would see what is not flat
        [nn.Flatten(0), nn.Linear(12, 6)],
        [nn.Flatten(1), nn.Linear(12, 6), nn.Dropout(0.5)],
        [nn.Flatten(1), nn.Linear(12, 6), nn.BatchNorm1d(6)],
        [nn.Flatten(1), Doubled(12, 6)],
        [nn.Flatten(1), nn.Linear(12, 6), nn.Softmax(1)],
        [],
    ],
)
def test_what_is_no_chain(body: list[nn.Module]) -> None:
    assert chain_of(Net(nn.Sequential(*body), nn.Linear(6, 4))) is None


def test_layers_that_share_a_weight_are_no_chain() -> None:
    """Its gradient is a sum, whether one layer stands in two places or two layers have one weight."""
    first, second = nn.Linear(12, 12), nn.Linear(12, 12)
    second.weight = first.weight
    for other in (first, second):
        body = nn.Sequential(nn.Flatten(1), first, nn.ReLU(), other)
        assert optimise(Net(body, nn.Linear(12, 4))) is None


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto", "fedrep", "map", "fedproto", "apfl"])
def test_a_stacked_round_is_the_one_under_vmap(name: str) -> None:
    """With cross-entropy alone, and with heads, terms, companions and private training."""
    tiny = Tiny(build_method(name)).run(2, [0, 1, 2, 3])
    _, ours = pair(tiny)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raffed.core.kernels.chain_of", lambda module: None)
        _, under_vmap = pair(tiny)
    assert ours.net.functional.chain is not None
    assert under_vmap.net.functional.chain is None
    agree_in_all(ours, under_vmap)


def by_autograd(out: tuple[Tensor, Tensor], y: Tensor, by: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The cross-entropy, and its gradients."""
    loss = cross_entropy(out[0], y)
    return loss, list(torch.autograd.grad(loss.sum(), list(by)))


PARTS = [["body.encoder.fc1.weight"], ["body.projection.bias", "head.weight"], ["head.bias"], []]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("stack", [False, True])
def test_the_cross_entropy_s_gradients_are_autograd_s_bits(
    act: type[nn.Module], bias: bool, stack: bool
) -> None:
    """All of them, in any order, and of some layers alone."""
    module = deep(bias, act)
    shape, lead = ((CLIENTS, BATCH), (CLIENTS,)) if stack else ((BATCH,), ())
    g = torch.Generator().manual_seed(4)
    w = {
        name: torch.randn(*lead, *p.shape, generator=g).requires_grad_()
        for name, p in module.named_parameters()
    }
    x, y = images(*shape), torch.randint(0, 4, shape, generator=g)
    known = chain(module)
    passed, written = (known.stacked, known.stacked_gradients) if stack else (known.alone, known.gradients)
    for names in [list(w), list(reversed(w)), *([name for name in part if name in w] for part in PARTS)]:
        loss, found = written(w, x, y, names)
        wanted_loss, wanted = (
            by_autograd(passed(w, x), y, [w[name] for name in names]) if names else (loss, [])
        )
        assert same_bits([loss, *found], [wanted_loss, *wanted])
        assert not any(t.requires_grad for t in [loss, *found])
        assert all(t.is_contiguous() for t in found)  # in the order of the weights: the update copies others


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto", "fedavgm", "fedper"])
@pytest.mark.parametrize("cohort", [False, True])
def test_a_run_has_the_bits_of_one_by_autograd(
    name: str, cohort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    by_hand = "stacked_gradients" if cohort else "gradients"
    inner = getattr(LinearChain, by_hand)
    monkeypatch.setattr(LinearChain, by_hand, lambda *given: (calls.append(1), inner(*given))[1])
    written = Tiny(build_method(name), cohort=cohort).run(2, [0, 1, 2, 3]).everything()
    assert calls
    monkeypatch.setattr(Network, "written_out", False)
    calls.clear()
    by_graph = Tiny(build_method(name), cohort=cohort).run(2, [0, 1, 2, 3]).everything()
    assert not calls
    assert same_bits(written, by_graph)
