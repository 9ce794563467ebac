"""Multilayer perceptrons: the image is flattened, then a linear layer and a ReLU for each width, then the
head.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from raffed.config.validation import checked
from raffed.models.catalogue import (
    AnyShape,
    Classes,
    HeadBias,
    HiddenWidths,
    MoonProjection,
    ProjectionHidden,
)
from raffed.models.net import Net, check_projection, init_map, with_projection


@checked
def mlp(
    in_shape: AnyShape,
    num_classes: Classes,
    *,
    hidden: HiddenWidths = (64, 64),
    projection: MoonProjection = 0,
    projection_hidden: ProjectionHidden = 0,
    head_bias: HeadBias = True,
) -> Net:
    """Make a small multilayer perceptron for tiny images, with PyTorch's default initialisation.

    On 1x8x8 with 10 classes it has 8,970 parameters, or 4,810 with `hidden = (64,)`. With `hidden = (200,
    200)` it has 199,210 on 1x28x28. With `projection = 256` and `projection_hidden = 100` as well, the
    network of MOON in FedVLS's Table 1 (Guo et al., AAAI 2025), it has 245,726.

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, hidden[-1]]); z is after its ReLU, or is the
        projection.

    Raises:
        UsageError: The hidden layer of a projection has a width, and there is no projection.
    """
    check_projection("mlp", projection, projection_hidden)
    return with_projection(_stack(in_shape, num_classes, hidden, head_bias), projection, projection_hidden)


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
