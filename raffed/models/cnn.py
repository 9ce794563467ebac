"""Convolutional networks without BatchNorm and without dropout.

"Max-pool" means 2x2 windows with stride 2; an odd last row or column is dropped.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from raffed.config.validation import Doc, checked
from raffed.models import (
    AnyShape,
    Classes,
    DropoutRate,
    HeadBias,
    ImageShape,
    MoonProjection,
    Norm,
    NormPlace,
)
from raffed.models.net import (
    Dropout,
    GridMean,
    Net,
    check_side,
    convolved,
    init_map,
    refuse_shape,
    with_norm,
    with_projection,
)


@checked
def lenet(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    projection: MoonProjection = 0,
    norm: Norm = "none",
    norm_place: NormPlace = "after",
    head_bias: HeadBias = False,
) -> Net:
    """Make LeNet-5 with ReLU and max-pooling.

    This is the network as read from Li et al. (MAP, TKDE 2024), after LeCun et al. (1998). The feature z is
    the 84-wide layer after its ReLU. The first convolution pads 28x28 inputs with zeros to 32x32, so both
    sizes have the same number of parameters: with one channel and 10 classes 61,696, or 61,706 with
    `head_bias`. Weights are initialised by `init_map`.

    Layers:
        conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400, 120 ReLU, 84 ReLU, C

    Inputs:
        1x32x32, 1x28x28, 3x32x32

    Source:
        Li et al., MAP, TKDE 2024; LeCun et al. 1998

    Args:
        in_shape: Channels, height and width; 32x32 or 28x28 images.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 84]); z [B, projection] with a projection.

    Raises:
        UsageError: The network does not take images of this shape; or the place of a norm is given, and there
            is none.
    """
    _, height, width = in_shape
    if height != width or height not in (28, 32):
        raise refuse_shape("lenet", in_shape, "Kx28x28 and Kx32x32 for any number of channels K")
    body = _lenet_body(in_shape, padding=2 if height == 28 else 0)
    net = with_norm(Net(body, nn.Linear(84, num_classes, bias=head_bias)), "lenet", norm, norm_place)
    net = with_projection(net, projection)
    init_map(net)
    return net


@checked
def lenet_2d(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    relu: Annotated[bool, Doc("Whether z passes through a ReLU. Without it z is signed.")] = False,
    head_bias: HeadBias = False,
) -> Net:
    """Make LeNet-5 with one more layer, from 84 to 2, whose output can be drawn (MAP, Figs. 5 and 8).

    The paper's "84 → 2" is read as an additional layer, not as 2 in the place of 84. Weights are initialised
    by `init_map`.

    Layers:
        lenet, 84 ReLU, 2, C (relu: ReLU on the 2-d feature)

    Inputs:
        1x32x32, 1x28x28

    Source:
        Li et al., MAP, TKDE 2024, Figs. 5 and 8

    Args:
        in_shape: Channels, height and width; 32x32 or 28x28 images.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 2]).

    Raises:
        UsageError: The network does not take images of this shape.
    """
    net = lenet(in_shape, num_classes)
    assert isinstance(net.body, nn.Sequential)
    net.body.add_module("fc3", nn.Linear(84, 2))
    if relu:
        net.body.add_module("relu5", nn.ReLU())
    net = Net(net.body, nn.Linear(2, num_classes, bias=head_bias))
    init_map(net)
    return net


@checked
def lenet_authors(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make the LeNet of the MAP authors' released code.

    It has two 5x5 convolutions of 16 channels, each with ReLU and max-pooling, and then the head. With 10
    classes it has 10,832 parameters on 1x32x32 and 9,392 on 1x28x28. Weights are initialised by `init_map`.

    Layers:
        conv5 16, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten 400 (256 on 28x28), C

    Inputs:
        1x32x32, 1x28x28

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, D]). z is the flattened last map: D = 400 on 32x32
        images, 256 on 28x28.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("lenet_authors", in_shape, 16)
    layers, flat = convolved(in_shape, (16, 16), 5)
    layers["flatten"] = nn.Flatten(1)
    net = Net(nn.Sequential(layers), nn.Linear(flat, num_classes, bias=head_bias))
    init_map(net)
    return net


@checked
def simplecnn(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    projection: MoonProjection = 0,
    norm: Norm = "none",
    norm_place: NormPlace = "after",
    head_bias: HeadBias = True,
) -> Net:
    """Make the SimpleCNN of FedMR's code (TMLR 2023), with PyTorch's default initialisation.

    With 10 classes it has 62,006 parameters on 3x32x32 and 44,426 on 1x28x28. Convolutions are not padded, so
    the flattened map is 256 wide on 28x28 images.

    Layers:
        conv5 6, ReLU, max-pool, conv5 16, ReLU, max-pool, flatten, 120 ReLU, 84 ReLU, C

    Inputs:
        3x32x32, 1x28x28

    Source:
        FedMR, TMLR 2023, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 84]); z is after its ReLU, or is the projection.

    Raises:
        UsageError: The network does not take images of this shape; or the place of a norm is given, and there
            is none.
    """
    check_side("simplecnn", in_shape, 16)
    body = _lenet_body(in_shape, padding=0)
    net = with_norm(Net(body, nn.Linear(84, num_classes, bias=head_bias)), "simplecnn", norm, norm_place)
    return with_projection(net, projection)


@checked
def tfcnn(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make the TFCNN of MAP's code: three 3x3 convolutions of 32, 64 and 64, each with ReLU and max-pooling.

    On 3x32x32 with 10 classes it has 66,560 parameters. The paper calls it the "net of FedAvg", which would
    be the network of TensorFlow's tutorial; raffed follows the authors' code. Weights are initialised by
    `init_map`.

    Layers:
        conv3 32, ReLU, max-pool, conv3 64, ReLU, max-pool, conv3 64, ReLU, max-pool, flatten 1024, C

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, D]). z is the flattened last map: D = 1024 on 32x32.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("tfcnn", in_shape, 8)
    layers, flat = convolved(in_shape, (32, 64, 64), 3, (1, 1, 1))
    layers["flatten"] = nn.Flatten(1)
    net = Net(nn.Sequential(layers), nn.Linear(flat, num_classes, bias=head_bias))
    init_map(net)
    return net


@checked
def femnist_cnn(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make MAP's network for handwritten characters, as in its authors' code.

    The last map is pooled to 4x4 before the head. With one channel and 62 classes it has 115,584 parameters.
    Weights are initialised by `init_map`.

    Layers:
        conv5 32, ReLU, max-pool, conv5 64, ReLU, mean-pool to 4x4, flatten 1024, C

    Inputs:
        1x28x28

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 1024]). z is the flattened 64x4x4 map.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("femnist_cnn", in_shape, 8)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(in_shape[0], 32, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 5, padding=2),
        relu2=nn.ReLU(),
        pool2=GridMean(4),
        flatten=nn.Flatten(1),
    )
    net = Net(nn.Sequential(layers), nn.Linear(1024, num_classes, bias=head_bias))
    init_map(net)
    return net


def _lenet_body(in_shape: tuple[int, int, int], padding: int) -> nn.Sequential:
    """Make LeNet-5's body [B, K, H, W] -> [B, 84], whose first convolution is padded."""
    layers, flat = convolved(in_shape, (6, 16), 5, (padding, 0))
    ends = {"fc1": nn.Linear(flat, 120), "relu3": nn.ReLU(), "fc2": nn.Linear(120, 84), "relu4": nn.ReLU()}
    return nn.Sequential(OrderedDict(**layers, flatten=nn.Flatten(1), **ends))


# The small networks of public benchmarks: a linear model, and three CNNs with one hidden layer.
#
# All but `cnn_pfl` have PyTorch's default initialisation.


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

    Layers:
        flatten, C (sigmoid: a sigmoid before the cross-entropy)

    Inputs:
        1x28x28, 1x8x8

    Source:
        Li et al. 2020, FedProx; FedML; FLUTE.
        Flower repeats FedProx's experiment with MNIST without the sigmoid; FedML (He et al. 2020) and FLUTE
        (Garcia et al. 2022) have it.

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

    Layers:
        conv5 32, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten 1024, 512 ReLU, C

    Inputs:
        1x28x28, 3x32x32

    Source:
        PFLlib (JMLR 2025); GPFL.
        Class `FedAvgCNN` of PFLlib (Zhang et al. 2025); GPFL is Zhang et al. 2023.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]); z is after its ReLU.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("cnn_pfllib", in_shape, 16)
    return _two_convolutions(in_shape, num_classes, head_bias, 0, 0)


@checked
def cnn_pfl(
    in_shape: ImageShape, num_classes: Classes, *, dropout: DropoutRate = 0.5, head_bias: HeadBias = True
) -> Net:
    """Make the CNN of pfl-research's benchmark: two 3x3 convolutions of 32 and 64, and a hidden layer of 128.

    Dropout follows the hidden layer, and half as much of it the max-pool. Convolutions are not padded. On
    3x32x32 with 10 classes it has 1,626,442 parameters. Weights are Glorot-uniform, and biases have PyTorch's
    default.

    Layers:
        conv3 32, ReLU, conv3 64, ReLU, max-pool, dropout 0.25, flatten 12544, 128 ReLU, dropout 0.5, C

    Inputs:
        3x32x32, 1x28x28

    Source:
        pfl-research (NeurIPS 2024).
        The CNN for CIFAR-10 and FEMNIST of apple/pfl-research, after Reddi et al. 2021.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 128]); z is after its ReLU and dropout.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    channels, height, width = in_shape
    check_side("cnn_pfl", in_shape, 6)
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

    Layers:
        conv5 32, ReLU, max-pool, conv5 64, ReLU, max-pool (padded), flatten 3136, 512 ReLU, C

    Inputs:
        1x28x28, 3x32x32

    Source:
        McMahan et al. 2017.
        Section 3 of the paper. `padding = "pools"` is the network of Flower's baselines.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]); z is after its ReLU.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("cnn_mcmahan", in_shape, 4)
    return _two_convolutions(in_shape, num_classes, head_bias, *PADDING[padding])


def _two_convolutions(
    in_shape: tuple[int, int, int], num_classes: int, head_bias: bool, conv_pad: int, pool_pad: int
) -> Net:
    """Make conv5 32, ReLU, max-pool, conv5 64, ReLU, max-pool, flatten, 512 ReLU and the head."""
    layers, flat = convolved(in_shape, (32, 64), 5, (conv_pad, conv_pad), pool_pad)
    layers["flatten"] = nn.Flatten(1)
    layers["fc1"] = nn.Linear(flat, HIDDEN)
    layers["relu3"] = nn.ReLU()
    return Net(nn.Sequential(layers), nn.Linear(HIDDEN, num_classes, bias=head_bias))
