"""The networks' dropout on its own, and in the kernel: fair, by elements or by samples, from a stream
given from outside.
"""

import math
from collections import OrderedDict

import pytest
import torch
from torch import nn

from raffed.core.training import seeded_dropout
from raffed.core.training.network import Network
from raffed.errors import UsageError
from raffed.models import build
from raffed.models.net import Dropout, Net


def in_kernel(layer: nn.Module, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """What the layer makes of x in a network of the kernel: the features of an identity body, linear head
    ignored.
    """
    body = nn.Sequential(OrderedDict(fc=nn.Linear(1, 1), drop=layer))
    net = Network(Net(body, nn.Linear(1, 1)))
    net.noise.generator = torch.Generator().manual_seed(seed)
    stream = net.module.get_submodule("body.drop")
    assert isinstance(stream, seeded_dropout.StreamDropout)
    out: torch.Tensor = stream(x)
    return out


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("kernel", [False, True])
def test_a_share_p_becomes_zero_and_the_rest_is_divided_by_1_minus_p(p: float, kernel: bool) -> None:
    """Binomial(10^6, p): five standard deviations."""
    x = torch.ones(1000, 1000)
    out = in_kernel(Dropout(p), x) if kernel else Dropout(p)(x)
    assert out.unique().tolist() == [0.0, pytest.approx(1 / (1 - p))]
    share = (out == 0).double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / 1e6)


@pytest.mark.parametrize("kernel", [False, True])
def test_by_rows_a_sample_is_kept_whole_or_dropped_whole(kernel: bool) -> None:
    x, layer = torch.ones(1000, 3, 2, 2), Dropout(0.5, rows=True)
    out = (in_kernel(layer, x) if kernel else layer(x)).flatten(1)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert (out == out[:, :1]).all()
    assert abs((out[:, 0] == 0).sum().item() - 500) < 5 * math.sqrt(250)


@pytest.mark.parametrize("kernel", [False, True])
def test_a_dropped_element_has_no_gradient_and_no_nan_passes_through_it(kernel: bool) -> None:
    x = torch.full((100,), 1.0, requires_grad=True)
    out = in_kernel(Dropout(0.5), x) if kernel else Dropout(0.5)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
    if kernel:
        dropped = in_kernel(Dropout(0.5), torch.full((100,), float("nan")))
        assert torch.equal(dropped == 0, out == 0)


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.5), nn.Dropout(1.0)])
def test_a_dropout_that_is_not_to_zero_or_keeps_nothing_is_refused_by_the_kernel(layer: nn.Module) -> None:
    with pytest.raises(TypeError, match="must be a dropout to zero"):
        Network(Net(nn.Sequential(nn.Linear(4, 3), layer), nn.Linear(3, 2)))


def test_wrn28_drops_three_tenths_between_the_two_convolutions_of_each_of_its_twelve_blocks() -> None:
    """docs/papers/fedmr.md §5: dropout 0.3; a block is norm1, conv1, dropout, norm2, conv2 in the order
    of its forward pass.
    """
    layers = [m for m in build("wrn28", (3, 32, 32), 100, 0).modules() if isinstance(m, Dropout)]
    assert [layer.p for layer in layers] == [0.3] * 12
    net, seen = build("wrn28", (3, 8, 8), 100, 0, widen=1), list[str]()
    for name, layer in net.named_modules():
        if name.rpartition(".")[2] in ("conv1", "dropout", "norm2", "conv2"):
            layer.register_forward_hook(lambda *_, name=name: seen.append(name))
    net(torch.zeros(2, 3, 8, 8))
    blocks = [f"body.stage{stage}.{block}" for stage in (1, 2, 3) for block in range(4)]
    assert seen == [
        f"{block}.{layer}" for block in blocks for layer in ("conv1", "dropout", "norm2", "conv2")
    ]


@pytest.mark.parametrize("layer", [nn.LSTM(4, 4, 2, dropout=0.1), nn.MultiheadAttention(4, 2, dropout=0.1)])
def test_a_dropout_inside_another_layer_is_refused(layer: nn.Module) -> None:
    """It would draw from torch's global generator."""
    with pytest.raises(UsageError, match=r"body\.0: the dropout = 0\.1 inside"):
        Network(Net(nn.Sequential(layer), nn.Linear(4, 3)))
