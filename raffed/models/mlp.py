"""Multilayer perceptrons: the image is flattened, then a linear layer and a ReLU for each width, then the
head.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

import torch
from torch import nn

from raffed.config.validation import Doc, Length, Range, checked
from raffed.models import (
    AnyShape,
    Classes,
    HeadBias,
    HiddenWidths,
    ImageShape,
    MoonProjection,
    Norm,
    NormPlace,
    ProjectionHidden,
)
from raffed.models.net import Net, check_side, convolved, init_map, with_norm, with_projection


@checked
def mlp(
    in_shape: AnyShape,
    num_classes: Classes,
    *,
    hidden: HiddenWidths = (64, 64),
    projection: MoonProjection = 0,
    projection_hidden: ProjectionHidden = 0,
    norm: Norm = "none",
    norm_place: NormPlace = "after",
    head_bias: HeadBias = True,
) -> Net:
    """Make a small multilayer perceptron for tiny images, with PyTorch's default initialisation.

    On 1x8x8 with 10 classes it has 8,970 parameters, or 4,810 with `hidden = (64,)`. With `hidden = (200,
    200)` it has 199,210 on 1x28x28. With `projection = 256` and `projection_hidden = 100` as well, the
    network of MOON in FedVLS's Table 1 (Guo et al., AAAI 2025), it has 245,726.

    Layers:
        flatten, 64 ReLU, 64 ReLU, C (widths: hidden)

    Inputs:
        1x8x8

    Source:
        raffed, for tests and tiny images

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, hidden[-1]]); z is after its ReLU, or is the
        projection.

    Raises:
        UsageError: The hidden layer of a projection has a width, and there is no projection; or the place of
            a norm is given, and there is none.
    """
    net = with_norm(_stack(in_shape, num_classes, hidden, head_bias), "mlp", norm, norm_place)
    return with_projection(net, projection, projection_hidden)


@checked
def mlpnet(
    in_shape: AnyShape,
    num_classes: Classes,
    *,
    hidden: HiddenWidths = (512, 512),
    head_bias: HeadBias = False,
) -> Net:
    """Make MLPNet (Li et al., MAP, TKDE 2024): flatten, 512, 512 and a head; `init_map`.

    On 1x32x32 with 10 classes it has 792,576 parameters. On 1x28x28 with `head_bias` it has 669,706.

    Layers:
        flatten 1024, 512 ReLU, 512 ReLU, C (widths: hidden)

    Inputs:
        1x32x32, 1x28x28

    Source:
        Li et al., MAP, TKDE 2024

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, hidden[-1]]); z is after its ReLU.
    """
    net = _stack(in_shape, num_classes, hidden, head_bias)
    init_map(net)
    return net


@checked
def mlpnet_authors(in_shape: AnyShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make the MLPNet of the MAP authors' released code: flatten, 1024, 1024, 128 and a head; `init_map`.

    On 1x28x28 with 10 classes it has 1,985,920 parameters.

    Layers:
        flatten 784, 1024 ReLU, 1024 ReLU, 128 ReLU, C

    Inputs:
        1x28x28, 1x32x32

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 128]); z is after its ReLU.
    """
    return mlpnet(in_shape, num_classes, hidden=(1024, 1024, 128), head_bias=head_bias)


def _stack(in_shape: tuple[int, ...], num_classes: int, hidden: Sequence[int], head_bias: bool) -> Net:
    sizes = [math.prod(in_shape), *hidden]
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten(1))
    for i, (width_in, width_out) in enumerate(itertools.pairwise(sizes), start=1):
        layers[f"fc{i}"] = nn.Linear(width_in, width_out)
        layers[f"relu{i}"] = nn.ReLU()
    return Net(nn.Sequential(layers), nn.Linear(sizes[-1], num_classes, bias=head_bias))


# Networks whose body has two named parts, for MpFedcon (docs/papers/mpfedcon.md §1 and §5.2).
#
# MpFedcon shares `body.encoder`. The other part, `body.projection`, stays private, and so does the head.


ConvolutionWidths = Annotated[Sequence[int], Length(2, 2), Range(1), Doc("Widths of the two convolutions.")]
ProjectionWidth = Annotated[int, Range(1, 65536), Doc("Width of the projection.")]


@checked
def cnn5(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    channels: ConvolutionWidths = (64, 64),
    hidden: HiddenWidths = (120, 64),
    projection: ProjectionWidth = 256,
    head_bias: HeadBias = True,
) -> Net:
    """Make MpFedcon's 5-layer CNN (2022): two 5x5 convolutions with max-pooling, two hidden layers, a
    projection.

    With the defaults the encoder has 307,192 parameters on 3x32x32. With `channels = (64, 128)` and `hidden =
    (256, 128)`, the network of docs/papers/mpfedcon.md §1 for 100 classes, it has 1,062,144. PyTorch's
    default initialisation, no dropout.

    Layers:
        conv5 64, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten 1600, 120 ReLU, 64 ReLU | 64 ReLU, 256, C

    Inputs:
        3x32x32, 1x28x28

    Source:
        MpFedcon 2022

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, projection]). z is the signed projection.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("cnn5", in_shape, 16)
    layers, flat = convolved(in_shape, channels, 5)
    return _projected(layers, flat, hidden, projection, num_classes, head_bias)


@checked
def mlp5(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    hidden: HiddenWidths = (512, 256),
    projection: ProjectionWidth = 256,
    head_bias: HeadBias = True,
) -> Net:
    """Make MpFedcon's network for handwritten characters: flatten, 512, 256, then the projection.

    The encoder has 533,248 parameters on 1x28x28.

    Layers:
        flatten, 512 ReLU, 256 ReLU | 256 ReLU, 256, C

    Inputs:
        1x28x28

    Source:
        MpFedcon 2022

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, projection]). z is the signed projection.
    """
    return _projected(OrderedDict(), math.prod(in_shape), hidden, projection, num_classes, head_bias)


@checked
def lenet_dlg(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    fc_layers: Annotated[
        int,
        Range(1, 3),
        Doc(
            "Number of linear layers, with sigmoid between them. They lead from 768 to C directly, by way "
            "of 256, or by way of 256 and 128 (the variants cl and at of MpFedcon)."
        ),
    ] = 1,
    head_bias: HeadBias = True,
) -> Net:
    """Make the network on which attacks by gradient leakage are tried (Zhu et al. 2019, mit-han-lab/dlg).

    It has three 5x5 convolutions of 12 channels with sigmoid and strides 2, 2 and 1, so the flattened map is
    768 wide on 3x32x32. All weights and biases are uniform in [-0.5, 0.5].

    Layers:
        3 times conv5 12, sigmoid (strides 2, 2, 1), flatten 768, C (fc_layers: 1 to 3)

    Inputs:
        3x32x32

    Source:
        MpFedcon 2022; Zhu et al. 2019

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, D]). z is the input of the last layer.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("lenet_dlg", in_shape, 2)
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
    layers: OrderedDict[str, nn.Module],
    flat: int,
    hidden: Sequence[int],
    projection: int,
    classes: int,
    bias: bool,
) -> Net:
    """Put together encoder, projection and head.

    The encoder is `layers`, flatten and the hidden widths with ReLU. The projection is Linear, ReLU, Linear,
    without a ReLU at its end (MOON's code).
    """
    sizes = [flat, *hidden]
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
