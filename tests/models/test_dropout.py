"""Dropout from a key: fair, independent and the same everywhere; and it is what the kernel takes for dropout."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from raffed.core import seeds
from raffed.core.errors import UsageError
from raffed.core.network import Network
from raffed.models.dropout import Dropout, draw_key, dropout_keys, uniform_bits
from raffed.models.net import Net


def given(layer: Dropout, key: int, x: torch.Tensor) -> torch.Tensor:
    return functional_call(layer, {"key": torch.tensor(key)}, (x,))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_a_share_p_becomes_zero_and_the_rest_is_divided_by_1_minus_p(p: float) -> None:
    """Binomial(10^6, p): five standard deviations."""
    out = given(Dropout(p), 12345, torch.ones(1000, 1000))
    assert out.unique().tolist() == [0.0, pytest.approx(1 / (1 - p))]
    share = (out == 0).double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / 1e6)


def test_neighbouring_places_and_neighbouring_keys_are_uncorrelated_and_every_bit_is_fair() -> None:
    """Correlations of n = 10^6 independent numbers have standard deviation 10^-3; shares of ones half of that."""
    place = torch.arange(1_000_000)
    rows = torch.stack([uniform_bits(torch.tensor(key), place) for key in (7, 8, 7 + 2**32, 7 + 2**40)]).double() / 2**32
    assert rows.min() >= 0
    assert rows.max() < 1
    pairs = torch.corrcoef(rows) - torch.eye(4)
    assert pairs.abs().max() < 5e-3
    for step in (1, 2, 32, 1024):
        assert torch.corrcoef(torch.stack([rows[0, step:], rows[0, :-step]]))[0, 1].abs() < 5e-3
    bits = (uniform_bits(torch.tensor(7), place)[:, None] >> torch.arange(32)) & 1
    assert (bits.double().mean(0) - 0.5).abs().max() < 5 * 0.5e-3


def test_the_same_key_drops_the_same_and_another_key_something_else() -> None:
    layer, x = Dropout(0.5), torch.ones(64, 64)
    assert torch.equal(given(layer, 5, x), given(layer, 5, x))
    assert not torch.equal(given(layer, 5, x), given(layer, 6, x))


def test_by_rows_a_sample_is_kept_whole_or_dropped_whole() -> None:
    out = given(Dropout(0.5, rows=True), 1, torch.ones(1000, 3, 2, 2)).flatten(1)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert (out == out[:, :1]).all()
    assert abs((out[:, 0] == 0).sum().item() - 500) < 5 * math.sqrt(250)


def test_evaluation_and_p_0_return_x_itself_and_draw_nothing() -> None:
    before, x = torch.get_rng_state(), torch.ones(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(before, torch.get_rng_state())


def test_a_dropped_element_has_no_gradient_and_no_nan_passes_through_it() -> None:
    x = torch.ones(100, requires_grad=True)
    out = given(Dropout(0.5), 3, x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    dropped = given(Dropout(0.5), 3, torch.full((100,), float("nan")))
    assert torch.equal(dropped == 0, out == 0)


def test_stacked_clients_drop_by_their_own_keys() -> None:
    layer, x = Dropout(0.5), torch.ones(3, 5, 7)
    keys = torch.tensor([4, 9, 4])
    stacked = vmap(lambda key, x: functional_call(layer, {"key": key}, (x,)))(keys, x)
    for i, key in enumerate(keys.tolist()):
        assert torch.equal(stacked[i], given(layer, key, x[i]))


def test_without_a_key_each_pass_draws_the_next_one_from_the_forked_global_generator() -> None:
    layer, x = Dropout(0.5), torch.ones(8, 8)
    with seeds.forked(21):
        first, second = layer(x), layer(x)
    generator = torch.Generator().manual_seed(21)
    for out in (first, second):
        assert torch.equal(out, given(layer, int(draw_key(generator)), x))
    assert not torch.equal(first, second)


def test_the_kernel_sees_it_as_dropout_and_its_key_is_no_state() -> None:
    net = Net(nn.Sequential(nn.Flatten(1), nn.Linear(4, 3), Dropout(0.4)), nn.Linear(3, 2))
    network = Network(net)
    assert network.has_dropout
    assert network.initial.b.names == ()
    assert not [name for name in net.state_dict() if "key" in name]
    assert list(dropout_keys(net, torch.Generator())) == ["body.2.key"]


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_probability_outside_its_range_is_refused(p: float) -> None:
    with pytest.raises(UsageError, match="dropout = "):
        Dropout(p)
