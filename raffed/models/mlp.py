"""Multilayer perceptrons: the image is flattened, then a linear layer and a ReLU for each width, then the
head.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from raffed.errors import UsageError
from raffed.models.net import Net, init_map


def mlp(
    in_shape: tuple[int, ...],
    num_classes: int,
    *,
    hidden: Sequence[int] = (64, 64),
    head_bias: bool = True,
) -> Net:
    """Make a small multilayer perceptron for tiny images, with PyTorch's default initialisation.

    On 1x8x8 with 10 classes it has 8,970 parameters, or 4,810 with `hidden = (64,)`.

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.
        hidden: Widths of the hidden layers; at least one.
        head_bias: Whether the head has a bias.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, hidden[-1]]); z is after its ReLU.

    Raises:
        UsageError: A width is not a positive integer, or there is none.
    """
    return _stack("mlp", in_shape, num_classes, hidden, head_bias)


def mlpnet(
    in_shape: tuple[int, ...],
    num_classes: int,
    *,
    hidden: Sequence[int] = (512, 512),
    head_bias: bool = False,
) -> Net:
    """Make MLPNet (Li et al., MAP, TKDE 2024): flatten, 512, 512 and a head; `init_map`.

    On 1x32x32 with 10 classes it has 792,576 parameters. On 1x28x28 with `head_bias` it has 669,706.

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.
        hidden: Widths of the hidden layers; at least one.
        head_bias: Whether the head has a bias.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, hidden[-1]]); z is after its ReLU.

    Raises:
        UsageError: A width is not a positive integer, or there is none.
    """
    net = _stack("mlpnet", in_shape, num_classes, hidden, head_bias)
    init_map(net)
    return net


def mlpnet_authors(in_shape: tuple[int, ...], num_classes: int, *, head_bias: bool = False) -> Net:
    """Make the MLPNet of the MAP authors' released code: flatten, 1024, 1024, 128 and a head; `init_map`.

    On 1x28x28 with 10 classes it has 1,985,920 parameters.

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.
        head_bias: Whether the head has a bias.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 128]); z is after its ReLU.
    """
    return mlpnet(in_shape, num_classes, hidden=(1024, 1024, 128), head_bias=head_bias)


def _stack(
    name: str, in_shape: tuple[int, ...], num_classes: int, hidden: Sequence[int], head_bias: bool
) -> Net:
    sizes = [math.prod(in_shape), *checked_widths(name, hidden)]
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten(1))
    for i, (width_in, width_out) in enumerate(itertools.pairwise(sizes), start=1):
        layers[f"fc{i}"] = nn.Linear(width_in, width_out)
        layers[f"relu{i}"] = nn.ReLU()
    return Net(nn.Sequential(layers), nn.Linear(sizes[-1], num_classes, bias=head_bias))


def checked_widths(name: str, hidden: Sequence[int], keyword: str = "hidden") -> list[int]:
    """Return the widths, checked. At least one is needed: without a hidden layer the body would have no
    parameters.
    """
    listed = isinstance(hidden, (tuple, list)) and len(hidden) > 0
    if not listed or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in hidden):
        raise UsageError(
            f"{name}: {keyword} = {hidden!r} is not a list of one or more widths, each an integer >= 1; "
            f"write {keyword}=[64,64]"
        )
    return list(hidden)
