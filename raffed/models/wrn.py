"""Wide residual network of depth 28 (Zagoruyko & Komodakis 2016), in the form of FedMR's code (TMLR 2023)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

from torch import Tensor, nn

from raffed.config.validation import Doc, Range, checked
from raffed.models.arguments import Classes, DropoutRate, HeadBias, ImageShape, MoonProjection
from raffed.models.dropout import Dropout
from raffed.models.net import GlobalMean, Net, refuse_shape, with_projection

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

    Args:
        in_shape: Channels, height and width.
        num_classes: Number of classes C.

    Returns:
        A network [B, *in_shape] -> (logits [B, C], z [B, 64 widen]). z is the pooled map, >= 0, or the
        projection.

    Raises:
        UsageError: The network does not take images of this shape.
    """
    if min(in_shape[1:]) < 8:
        raise refuse_shape("wrn28", in_shape, "KxHxW with H and W of at least 8")
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=nn.Conv2d(in_shape[0], 16, 3, padding=1))
    k_in = 16
    for i, k_out in enumerate((16 * widen, 32 * widen, 64 * widen), start=1):
        strides = [1 if i == 1 else 2] + [1] * (BLOCKS - 1)
        layers[f"stage{i}"] = nn.Sequential(
            *(
                WideBlock(k_in if j == 0 else k_out, k_out, stride, dropout)
                for j, stride in enumerate(strides)
            )
        )
        k_in = k_out
    layers["norm"] = nn.BatchNorm2d(k_in, momentum=LAST_MOMENTUM)
    layers["relu"] = nn.ReLU()
    layers["pool"] = GlobalMean()
    return with_projection(
        Net(nn.Sequential(layers), nn.Linear(k_in, num_classes, bias=head_bias)), projection
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
