"""MobileNetV2 (Sandler et al. 2018) as is usual for small images, and EfficientNet-B0 of torchvision."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

from torch import Tensor, nn
from torchvision.models import efficientnet_b0 as base
from torchvision.ops import StochasticDepth

from raffed.config.validation import Doc, Range, checked
from raffed.models import (
    Classes,
    DropoutRate,
    HeadBias,
    ImageShape,
    MoonProjection,
    ProjectionHidden,
)
from raffed.models.net import Dropout, GlobalMean, Net, check_side, refuse_shape, with_projection

STAGES = (  # factor of expansion, width, number of blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
WIDTH = 1280


@checked
def mobilenet_v2(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    projection: MoonProjection = 0,
    projection_hidden: ProjectionHidden = 0,
    head_bias: HeadBias = True,
) -> Net:
    """Make MobileNetV2 for small images: a stem of stride 1, 17 inverted residual blocks, 1280 features.

    It differs from the paper's network for 224x224 images in four things, as the usual network for CIFAR-10
    does. The stem and the second stage keep the size. The activation is ReLU instead of ReLU6. A block of
    stride 1 whose widths differ has a shortcut, a 1x1 convolution with BatchNorm. There is no dropout. On
    3x32x32 with 10 classes it has 2,296,922 parameters and 35,088 BatchNorm statistics. With
    `projection = 256` and `projection_hidden = 640`, the network of MOON in FedVLS's code, it has 3,270,618.
    PyTorch's default initialisation.

    Layers:
        conv3 32, 17 inverted residuals 16 to 320, conv1 1280 (BN, ReLU after each), global mean, C

    Inputs:
        3x32x32

    Source:
        Sandler et al. 2018; FedVLS.
        The form for small images, with this number of parameters, is that of FedVLS (Guo et al. 2025).

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 1280]). z is the pooled map, >= 0, or is the
        projection.

    Raises:
        UsageError: The images are so small that the last map would be 1x1, where BatchNorm cannot train on a
            batch of one sample. Or the hidden layer of a projection has a width, and there is no projection.
    """
    check_side("mobilenet_v2", in_shape, 9)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(in_shape[0], 32, 3, padding=1, bias=False), norm1=nn.BatchNorm2d(32), relu1=nn.ReLU()
    )
    k_in = 32
    for i, (expansion, k_out, blocks, first) in enumerate(STAGES, start=1):
        stage = nn.Sequential()
        for j in range(blocks):
            stage.append(InvertedResidual(k_in, k_out, expansion, first if j == 0 else 1))
            k_in = k_out
        layers[f"stage{i}"] = stage
    layers["conv2"] = nn.Conv2d(k_in, WIDTH, 1, bias=False)
    layers["norm2"] = nn.BatchNorm2d(WIDTH)
    layers["relu2"] = nn.ReLU()
    layers["pool"] = GlobalMean()
    net = Net(nn.Sequential(layers), nn.Linear(WIDTH, num_classes, bias=head_bias))
    return with_projection(net, projection, projection_hidden)


class InvertedResidual(nn.Module):
    """norm3(conv3(ReLU(norm2(conv2(ReLU(norm1(conv1(x)))))))) + shortcut(x).

    It maps [B, k_in, H, W] to [B, k_out, H / s, W / s]. Sizes are rounded up, s being the stride. conv1
    widens to k_in times `expansion`, conv2 works on each channel alone, and conv3 narrows. With a stride of 2
    there is no shortcut.
    """

    def __init__(self, k_in: int, k_out: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = expansion * k_in
        self.conv1 = nn.Conv2d(k_in, wide, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, stride, padding=1, groups=wide, bias=False)
        self.norm2 = nn.BatchNorm2d(wide)
        self.conv3 = nn.Conv2d(wide, k_out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(k_out)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module | None = nn.Identity() if stride == 1 else None
        if stride == 1 and k_in != k_out:
            self.shortcut = nn.Sequential(
                OrderedDict(conv=nn.Conv2d(k_in, k_out, 1, bias=False), norm=nn.BatchNorm2d(k_out))
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x))))))
        out: Tensor = self.norm3(self.conv3(inner))
        return out if self.shortcut is None else out + self.shortcut(x)


# EfficientNet-B0 (Tan & Le 2019) from torchvision, with a 640-wide layer before the head.
#
# FedMR's Table 3 implies that layer (docs/papers/fedmr.md §4).


EFFICIENTNET_WIDTH = 640


@checked
def efficientnet_b0(
    in_shape: ImageShape,
    num_classes: Classes,
    *,
    dropout: DropoutRate = 0.2,
    stochastic_depth: Annotated[
        float, Range(0.0, 0.99), Doc("Largest probability of dropping a residual branch.")
    ] = 0.2,
    projection: MoonProjection = 0,
    head_bias: HeadBias = True,
) -> Net:
    """Make EfficientNet-B0's features, global mean, dropout, Linear(1280, 640), ReLU and the head.

    With 8 classes it has 4,832,516 parameters and 42,016 BatchNorm statistics. The features have
    torchvision's initialisation, the two linear layers PyTorch's default; no ImageNet weights are loaded.
    FedMR's paper does not state the ReLU and the dropout, so B0's own are used. Two things differ from
    torchvision: dropout, also that of whole residual branches, is raffed's, and no operation works in place.

    Layers:
        torchvision's B0 features, global mean, dropout 0.2, 640 ReLU, C

    Inputs:
        3x200x200

    Source:
        FedMR, TMLR 2023; FLamby

    Args:
        in_shape: Channels, height and width. Needs 3 channels and sides of at least 33 pixels.
        num_classes: Number of classes C.

    Returns:
        A network [B, 3, H, W] -> (logits [B, C], z [B, 640]); z is after its ReLU, or is the projection.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    channels, height, width = in_shape
    # With smaller images the last map is 1x1, and BatchNorm cannot train on a batch of one
    if channels != 3 or min(height, width) < 33:
        raise refuse_shape("efficientnet_b0", in_shape, "3xHxW with H and W of at least 33")
    features = base(weights=None, stochastic_depth_prob=stochastic_depth).features
    for module in list(features.modules()):
        if hasattr(module, "inplace"):
            module.inplace = False
        if isinstance(getattr(module, "stochastic_depth", None), StochasticDepth):
            used = module.use_res_connect  # only a block with a shortcut can be dropped
            module.stochastic_depth = Dropout(module.stochastic_depth.p, rows=True) if used else nn.Identity()
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        features=features,
        pool=GlobalMean(),
        dropout=Dropout(dropout),
        fc=nn.Linear(1280, EFFICIENTNET_WIDTH),
        relu=nn.ReLU(),
    )
    net = Net(nn.Sequential(layers), nn.Linear(EFFICIENTNET_WIDTH, num_classes, bias=head_bias))
    return with_projection(net, projection)
