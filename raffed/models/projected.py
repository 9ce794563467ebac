"""Networks whose body has two named parts: `body.encoder`, which MpFedcon shares, and `body.projection`,
which stays private.

The head is the output layer, private as well (docs/papers/mpfedcon.md §1, §5.2).
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from raffed.errors import UsageError, check_range
from raffed.models.mlp import checked_widths
from raffed.models.net import Net, refuse_shape

Shape = tuple[int, int, int]


def cnn5(
    in_shape: Shape,
    num_classes: int,
    *,
    channels: Sequence[int] = (64, 64),
    hidden: Sequence[int] = (120, 64),
    projection: int = 256,
    head_bias: bool = True,
) -> Net:
    """The 5-layer CNN of MpFedcon (2022): two 5x5 convolutions with max-pool, two hidden layers, then the
    projection.

        Encoder 307,192 parameters on 3x32x32; 1,062,144 with channels = (64, 128), hidden = (256, 128), the
        network of docs/papers/mpfedcon.md §1 for 100 classes. z is the projection, `projection` wide and
        signed. PyTorch's default initialisation, no dropout.
    """
    first, second = _pair("cnn5", channels)
    if min(in_shape[1:]) < 16:
        raise refuse_shape("cnn5", in_shape, "KxHxW with H and W of at least 16")
    left_h, left_w = (((side - 4) // 2 - 4) // 2 for side in in_shape[1:])
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(in_shape[0], first, 5),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(first, second, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
    )
    return _projected("cnn5", layers, second * left_h * left_w, hidden, projection, num_classes, head_bias)


def mlp5(
    in_shape: Shape,
    num_classes: int,
    *,
    hidden: Sequence[int] = (512, 256),
    projection: int = 256,
    head_bias: bool = True,
) -> Net:
    """MpFedcon's net for characters: flatten, 512, 256, then the projection. Encoder 533,248 parameters
    on 1x28x28.
    """
    return _projected("mlp5", OrderedDict(), math.prod(in_shape), hidden, projection, num_classes, head_bias)


def lenet_dlg(in_shape: Shape, num_classes: int, *, fc_layers: int = 1, head_bias: bool = True) -> Net:
    """The victim of gradient leakage (Zhu et al. 2019, mit-han-lab/dlg): three 5x5 convolutions of 12 with
    sigmoid.

        Strides 2, 2, 1, so flatten 768 on 3x32x32. `fc_layers` 1, 2 or 3 (MpFedcon's cl and at): 768 to C, by
        way of 256, or of 256 and 128, sigmoid between. All weights and biases uniform in [-0.5, 0.5]. z is
        the input of the last layer.
    """
    check_range("lenet_dlg: fc_layers", fc_layers, 1, 3)
    if min(in_shape[1:]) < 2:
        raise refuse_shape("lenet_dlg", in_shape, "KxHxW with H and W of at least 2")
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (k_in, stride) in enumerate(((in_shape[0], 2), (12, 2), (12, 1)), start=1):
        layers[f"conv{i}"] = nn.Conv2d(k_in, 12, 5, stride, padding=2)
        layers[f"sigmoid{i}"] = nn.Sigmoid()
    layers["flatten"] = nn.Flatten(1)
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    widths = [12 * math.prod(-(-side // 4) for side in in_shape[1:]), 256, 128][:fc_layers]
    for i, (width_in, width_out) in enumerate(itertools.pairwise(widths), start=1):
        chain[f"fc{i}"] = nn.Linear(width_in, width_out)
        chain[f"sigmoid{i}"] = nn.Sigmoid()
    net = Net(_body(layers, chain), nn.Linear(widths[-1], num_classes, bias=head_bias))
    with torch.no_grad():
        for p in net.parameters():
            p.uniform_(-0.5, 0.5)
    return net


def _projected(
    name: str,
    layers: OrderedDict[str, nn.Module],
    flat: int,
    hidden: Sequence[int],
    projection: int,
    classes: int,
    bias: bool,
) -> Net:
    """encoder: `layers`, flatten, hidden widths with ReLU; projection: Linear, ReLU, Linear without ReLU
    (MOON's code).
    """
    check_range(f"{name}: projection", projection, 1, 2**16)
    sizes = [flat, *checked_widths(name, hidden)]
    layers["flatten"] = nn.Flatten(1)
    for i, (width_in, width_out) in enumerate(itertools.pairwise(sizes), start=1):
        layers[f"fc{i}"] = nn.Linear(width_in, width_out)
        layers[f"act{i}"] = nn.ReLU()
    last = sizes[-1]
    head: OrderedDict[str, nn.Module] = OrderedDict(
        fc1=nn.Linear(last, last), relu=nn.ReLU(), fc2=nn.Linear(last, projection)
    )
    return Net(_body(layers, head), nn.Linear(projection, classes, bias=bias))


def _body(encoder: OrderedDict[str, nn.Module], projection: OrderedDict[str, nn.Module]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(encoder=nn.Sequential(encoder), projection=nn.Sequential(projection)))


def _pair(what: str, widths: Sequence[int]) -> tuple[int, int]:
    both = checked_widths(what, widths, "channels")
    if len(both) != 2:
        raise UsageError(f"{what}: channels = {widths!r}, wanted two widths")
    return both[0], both[1]
