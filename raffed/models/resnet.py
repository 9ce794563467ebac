"""Residual networks for small images (He et al. 2016, in the layout of MOON's code).

The stem is a 3x3 convolution of stride 1 without max-pooling. BatchNorm is PyTorch's (momentum 0.1, eps
1e-5), and its buffers are running_mean, running_var and one counter for each layer. Every stage except the
first halves the map. The last map must be 2x2 or larger: on a 1x1 map BatchNorm cannot train on a batch of
one sample. `resnet18_gn` has GroupNorm instead, and takes images of any size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Annotated

from torch import Tensor, nn

from raffed.config.validation import Doc, Range, checked
from raffed.errors import UsageError
from raffed.models import Classes, DropoutRate, HeadBias, ImageShape, MoonProjection
from raffed.models.net import Dropout, GlobalMean, Net, check_side, init_convs, init_map, with_projection

Shape = tuple[int, int, int]
Norm = Callable[[int], nn.Module]  # makes the normalisation of so many channels


@checked
def resnet18(
    in_shape: ImageShape, num_classes: Classes, *, projection: MoonProjection = 0, head_bias: HeadBias = True
) -> Net:
    """Make ResNet-18 for small images (FedMR, GLDP): 4 stages of 2 blocks, 64/128/256/512 wide.

    With 10 classes it has 11,173,962 parameters for 3 channels or 11,172,810 for one, and 9,600 BatchNorm
    statistics. Convolutions are Kaiming-normal with fan_out, BatchNorm starts with weight 1 and bias 0, and
    the head has PyTorch's default (MOON's code).

    Layers:
        conv3 64, BN, ReLU, 4 stages of 2 basic blocks 64/128/256/512, global mean, C

    Inputs:
        3x32x32, 1x28x28

    Source:
        FedMR, TMLR 2023; GLDP; MOON's code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]). z is the pooled map, >= 0, or the projection.

    Raises:
        UsageError: The images are so small that the last map would be 1x1.
    """
    check_side("resnet18", in_shape, 9)
    net = _resnet(in_shape[0], num_classes, widths=(64, 128, 256, 512), blocks=2, head_bias=head_bias)
    return with_projection(net, projection)


@checked
def resnet18_gn(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    groups: Annotated[
        int, Range(1, 64), Doc("Groups of channels that are normalised together; a divisor of 64.")
    ] = 2,
    projection: MoonProjection = 0,
    head_bias: HeadBias = True,
) -> Net:
    """Make `resnet18` with GroupNorm in the place of BatchNorm.

    It has the same number of parameters, 11,173,962 with 3 channels and 10 classes, and no statistics that
    would have to be averaged. It is initialised as `resnet18`.

    Layers:
        resnet18 with GroupNorm instead of BN (groups: 2)

    Inputs:
        3x32x32, 1x28x28

    Source:
        Hsieh et al. 2020; Reddi et al. 2021.
        GroupNorm is of Wu & He 2018. Hsieh et al. propose it for clients with different classes, in 2
        groups, and Reddi et al. (FedOpt) train CIFAR-100 with it.

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 512]). z is the pooled map, >= 0, or the projection.

    Raises:
        UsageError: `groups` does not divide 64, the smallest width.
    """
    if 64 % groups:
        raise UsageError(
            f"resnet18_gn: groups = {groups} must divide 64, the smallest width; give 1, 2, 4, 8, 16, 32 or "
            f"64"
        )
    net = _resnet(
        in_shape[0],
        num_classes,
        widths=(64, 128, 256, 512),
        blocks=2,
        head_bias=head_bias,
        norm=lambda width: nn.GroupNorm(groups, width),
    )
    return with_projection(net, projection)


@checked
def resnet8(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    head_bias: HeadBias = True,
    stem_stride: Annotated[
        int,
        Range(1, 2),
        Doc(
            "Stride of the first convolution. With 2 all maps are halved, which takes a quarter of the work."
        ),
    ] = 1,
) -> Net:
    """Make ResNet-8: 3 stages of 1 block, 16/32/64 wide, initialised as `resnet18`.

    No paper uses this network. It is a network with BatchNorm that a CPU can train quickly. With one channel
    and 10 classes it has 77,754 parameters and 672 BatchNorm statistics.

    Layers:
        conv3 16, BN, ReLU, 3 stages of 1 basic block 16/32/64, global mean, C

    Inputs:
        1x8x8, 1x28x28, 3x32x32

    Source:
        raffed, a BatchNorm stand-in for resnet18 on a CPU

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 64]). z is the pooled map, >= 0.

    Raises:
        UsageError: The images are so small that the last map would be 1x1.
    """
    check_side("resnet8", in_shape, 8 * stem_stride)
    return _resnet(
        in_shape[0], num_classes, widths=(16, 32, 64), blocks=1, head_bias=head_bias, stem_stride=stem_stride
    )


@checked
def resnet20(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make ResNet-20 (He et al. 2016; MAP's code): 3 stages of 3 blocks, 16/32/64 wide; `init_map`.

    On 3x32x32 with 10 classes it has 272,464 parameters and 1,589 entries in buffers.

    Layers:
        conv3 16, BN, ReLU, 3 stages of 3 basic blocks 16/32/64, global mean, C

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 64]). z is the pooled map, >= 0.

    Raises:
        UsageError: The images are so small that the last map would be 1x1.
    """
    return _map_resnet("resnet20", in_shape, num_classes, 3, head_bias)


@checked
def resnet56(in_shape: ImageShape, num_classes: Classes, *, head_bias: HeadBias = False) -> Net:
    """Make ResNet-56: as `resnet20`, with 9 blocks in a stage.

    On 3x32x32 with 10 classes it has 855,760 parameters and 4,313 entries in buffers.

    Layers:
        conv3 16, BN, ReLU, 3 stages of 9 basic blocks 16/32/64, global mean, C

    Inputs:
        3x32x32

    Source:
        Li et al., MAP, TKDE 2024, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 64]). z is the pooled map, >= 0.

    Raises:
        UsageError: The images are so small that the last map would be 1x1.
    """
    return _map_resnet("resnet56", in_shape, num_classes, 9, head_bias)


def _map_resnet(name: str, in_shape: Shape, num_classes: int, blocks: int, head_bias: bool) -> Net:
    check_side(name, in_shape, 8)
    net = _resnet(in_shape[0], num_classes, widths=(16, 32, 64), blocks=blocks, head_bias=head_bias)
    init_map(net)
    return net


def _resnet(
    channels: int,
    num_classes: int,
    *,
    widths: tuple[int, ...],
    blocks: int,
    head_bias: bool,
    stem_stride: int = 1,
    norm: Norm = nn.BatchNorm2d,
) -> Net:
    stem = nn.Conv2d(channels, widths[0], 3, stem_stride, padding=1, bias=False)
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=stem, norm=norm(widths[0]), relu=nn.ReLU())
    _add_stages(layers, widths[0], widths, blocks, partial(BasicBlock, norm=norm))
    layers["pool"] = GlobalMean()
    net = Net(nn.Sequential(layers), nn.Linear(widths[-1], num_classes, bias=head_bias))
    init_convs(net)
    return net


def _add_stages(
    layers: OrderedDict[str, nn.Module],
    k_in: int,
    widths: tuple[int, ...],
    blocks: int,
    block: Callable[[int, int, int], nn.Module],
) -> None:
    """Add a stage of blocks for each width. `block` makes one from k_in, k_out and its stride."""
    for i, k_out in enumerate(widths, start=1):
        stage = nn.Sequential()
        for j in range(blocks):
            stage.append(block(k_in, k_out, 2 if i > 1 and j == 0 else 1))
            k_in = k_out
        layers[f"stage{i}"] = stage


class BasicBlock(nn.Module):
    """ReLU(norm(conv(ReLU(norm(conv(x))))) + shortcut(x)): [B, k_in, H, W] -> [B, k_out, H / s, W / s].

    Sizes are rounded up, s being the stride. The shortcut is a 1x1 convolution with BatchNorm where the shape
    changes, and x itself elsewhere.
    """

    def __init__(self, k_in: int, k_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(k_in, k_out, 3, stride, padding=1, bias=False)
        self.norm1 = norm(k_out)
        self.conv2 = nn.Conv2d(k_out, k_out, 3, padding=1, bias=False)
        self.norm2 = norm(k_out)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or k_in != k_out:
            self.shortcut = nn.Sequential(
                OrderedDict(conv=nn.Conv2d(k_in, k_out, 1, stride, bias=False), norm=norm(k_out))
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(inner + self.shortcut(x))
        return out


# Wide residual network of depth 28 (Zagoruyko & Komodakis 2016), in the form of FedMR's code (TMLR 2023).


BLOCKS = 4  # in each stage: 28 = 6 · 4 + 4 layers
LAST_MOMENTUM = 0.9  # of the last BatchNorm only; its statistics nearly forget earlier batches


@checked
def wrn28(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    widen: Annotated[int, Range(1, 100), Doc("Factor of all widths.")] = 10,
    dropout: DropoutRate = 0.3,
    projection: MoonProjection = 0,
    head_bias: HeadBias = True,
) -> Net:
    """Make WRN-28-10: 3 stages of 4 pre-activated blocks, 16/32/64 times `widen` wide.

    As in FedMR's code, every convolution has a bias, shortcuts have no BatchNorm, and the stride of a block
    is in its second convolution. The 8x8 mean pool of that code is the global mean on 32x32 images. On
    3x32x32 with 100 classes the network has 36,546,980 parameters and 17,952 BatchNorm statistics. PyTorch's
    default initialisation.

    Layers:
        conv3 16, 3 stages of 4 wide blocks 160/320/640 (dropout 0.3), BN, ReLU, global mean, C (widen: 10)

    Inputs:
        3x32x32

    Source:
        FedMR, TMLR 2023, code

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 64 widen]). z is the pooled map, >= 0, or the
        projection.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    check_side("wrn28", in_shape, 8)
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=nn.Conv2d(in_shape[0], 16, 3, padding=1))
    widths = (16 * widen, 32 * widen, 64 * widen)
    _add_stages(layers, 16, widths, BLOCKS, partial(WideBlock, dropout=dropout))
    layers["norm"] = nn.BatchNorm2d(widths[-1], momentum=LAST_MOMENTUM)
    layers["relu"] = nn.ReLU()
    layers["pool"] = GlobalMean()
    return with_projection(
        Net(nn.Sequential(layers), nn.Linear(widths[-1], num_classes, bias=head_bias)), projection
    )


class WideBlock(nn.Module):
    """conv2(ReLU(norm2(dropout(conv1(ReLU(norm1(x))))))) + shortcut(x): [B, k_in, H, W] -> [B, k_out, H / s,
    W / s].

    Sizes are rounded up, s being the stride.
    """

    def __init__(self, k_in: int, k_out: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(k_in)
        self.conv1 = nn.Conv2d(k_in, k_out, 3, padding=1)
        self.dropout = Dropout(dropout)
        self.norm2 = nn.BatchNorm2d(k_out)
        self.conv2 = nn.Conv2d(k_out, k_out, 3, stride, padding=1)
        self.relu = nn.ReLU()
        same = stride == 1 and k_in == k_out
        self.shortcut: nn.Module = nn.Identity() if same else nn.Conv2d(k_in, k_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.conv1(self.relu(self.norm1(x))))
        out: Tensor = self.conv2(self.relu(self.norm2(inner))) + self.shortcut(x)
        return out
