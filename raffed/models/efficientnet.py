"""EfficientNet-B0 (Tan & Le 2019) from torchvision, with a 640-wide layer before the head.

FedMR's Table 3 implies that layer (docs/papers/fedmr.md §4).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

from torch import nn
from torchvision.models import efficientnet_b0 as base
from torchvision.ops import StochasticDepth

from raffed.config.validation import Doc, Range, checked
from raffed.models.arguments import Classes, DropoutRate, HeadBias, ImageShape, MoonProjection
from raffed.models.dropout import Dropout
from raffed.models.net import GlobalMean, Net, refuse_shape, with_projection

WIDTH = 640


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
        fc=nn.Linear(1280, WIDTH),
        relu=nn.ReLU(),
    )
    net = Net(nn.Sequential(layers), nn.Linear(WIDTH, num_classes, bias=head_bias))
    return with_projection(net, projection)
