"""The small networks of public benchmarks: a linear model, and three CNNs with one hidden layer.

All but `cnn_pfl` have PyTorch's default initialisation.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from raffed.config.validation import Doc, checked
from raffed.models.arguments import AnyShape, Classes, DropoutRate, HeadBias, ImageShape
from raffed.models.dropout import Dropout
from raffed.models.net import Net, refuse_shape

HIDDEN = 512
PADDING = {"same": (2, 0), "pools": (1, 1)}  # of the convolutions, and of the max-pools


class SigmoidLinear(nn.Linear):
    """sigmoid(W z + b): a linear layer whose outputs lie between 0 and 1."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(z))


@checked
def linear(
    in_shape: AnyShape,
    num_classes: Classes,
    *,
    sigmoid: Annotated[
        bool,
        Doc(
            "Whether a sigmoid stands between the linear layer and the cross-entropy, as in the logistic "
            "regression of FedML and FLUTE. A method that computes scores from the head's weights itself "
            "leaves it out."
        ),
    ] = False,
    head_bias: HeadBias = True,
) -> Net:
    """Make a linear classifier of the flattened input: multinomial logistic regression.

    On 1x28x28 with 10 classes it has 7,850 parameters. All of them belong to the head; the body only flattens
    its input.

    Source:
        Li et al. 2020 (FedProx), whose MNIST experiment Flower repeats without the sigmoid; FedML (He et al.
        2020) and FLUTE (Garcia et al. 2022) have it.

    Args:
        in_shape: Shape of one sample: channels, height and width, or any other.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, D]). z is the flattened input.
    """
    width = math.prod(in_shape)
    layer = SigmoidLinear if sigmoid else nn.Linear
    body = nn.Sequential(OrderedDict(flatten=nn.Flatten(1)))
    return Net(body, layer(width, num_classes, bias=head_bias))


@checked
def cnn_pfllib(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = True) -> Net:
    """Make the CNN of PFLlib's leaderboard: two 5x5 convolutions of 32 and 64, and a hidden layer of 512.

    Convolutions are not padded. With 10 classes it has 582,026 parameters on 1x28x28, and with 100 classes
    924,708 on 3x32x32.

    Source:
        Zhang et al. 2025 (PFLlib), class `FedAvgCNN`; also GPFL (Zhang et al. 2023).

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]); z is after its ReLU.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    if min(in_shape[1:]) < 16:
        raise refuse_shape("cnn_pfllib", in_shape, "KxHxW with H and W of at least 16")
    return _two_convolutions(in_shape, num_classes, head_bias, 0, 0)


@checked
def cnn_pfl(
    in_shape: ImageShape, num_classes: Classes, *, dropout: DropoutRate = 0.5, head_bias: HeadBias = True
) -> Net:
    """Make the CNN of pfl-research's benchmark: two 3x3 convolutions of 32 and 64, and a hidden layer of 128.

    Dropout follows the hidden layer, and half as much of it the max-pool. Convolutions are not padded. On
    3x32x32 with 10 classes it has 1,626,442 parameters. Weights are Glorot-uniform, and biases have PyTorch's
    default.

    Source:
        pfl-research (apple/pfl-research), its CNN for CIFAR-10 and FEMNIST, after Reddi et al. 2021.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 128]); z is after its ReLU and dropout.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    channels, height, width = in_shape
    if min(height, width) < 6:
        raise refuse_shape("cnn_pfl", in_shape, "KxHxW with H and W of at least 6")
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 32, 3),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 3),
        relu2=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        dropout1=Dropout(dropout / 2),
        flatten=nn.Flatten(1),
        fc=nn.Linear((height - 4) // 2 * ((width - 4) // 2) * 64, 128),
        relu3=nn.ReLU(),
        dropout2=Dropout(dropout),
    )
    net = Net(nn.Sequential(layers), nn.Linear(128, num_classes, bias=head_bias))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return net


@checked
def cnn_mcmahan(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    padding: Annotated[
        Literal["same", "pools"],
        Doc(
            "Where zeros are added: same pads each convolution by 2, so that it keeps the size (the paper); "
            "pools pads convolutions and max-pools by 1 (Flower's TAMUNA and FedAvg). Both have the same "
            "weights on 28x28 images."
        ),
    ] = "same",
    head_bias: HeadBias = True,
) -> Net:
    """Make the CNN of the paper of FedAvg: as `cnn_pfllib`, but padded, so its last map is 7x7.

    With 10 classes it has 1,663,370 parameters on 1x28x28, the number that the paper states.

    Source:
        McMahan et al. 2017, section 3. `padding = "pools"` is the network of Flower's baselines.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]); z is after its ReLU.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    if min(in_shape[1:]) < 4:
        raise refuse_shape("cnn_mcmahan", in_shape, "KxHxW with H and W of at least 4")
    return _two_convolutions(in_shape, num_classes, head_bias, *PADDING[padding])


def _two_convolutions(
    in_shape: tuple[int, int, int], num_classes: int, head_bias: bool, conv_pad: int, pool_pad: int
) -> Net:
    """Make conv5 32, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten, 512 ReLU and the head."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    sides = list(in_shape[1:])
    for i, (k_in, k_out) in enumerate(((in_shape[0], 32), (32, 64)), start=1):
        layers[f"conv{i}"] = nn.Conv2d(k_in, k_out, 5, padding=conv_pad)
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"pool{i}"] = nn.MaxPool2d(2, padding=pool_pad)
        sides = [(side + 2 * conv_pad - 4 + 2 * pool_pad) // 2 for side in sides]
    layers["flatten"] = nn.Flatten(1)
    layers["fc1"] = nn.Linear(64 * math.prod(sides), HIDDEN)
    layers["relu3"] = nn.ReLU()
    return Net(nn.Sequential(layers), nn.Linear(HIDDEN, num_classes, bias=head_bias))
