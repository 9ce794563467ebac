"""EfficientNet-B0 (Tan & Le 2019) from torchvision, with the 640-wide layer that FedMR's Table 3 implies
(docs/papers/fedmr.md §4).
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn
from torchvision.models import efficientnet_b0 as base
from torchvision.ops import StochasticDepth

from raffed.errors import check_range
from raffed.models.dropout import Dropout
from raffed.models.net import GlobalMean, Net, refuse_shape, with_projection

WIDTH = 640


def efficientnet_b0(
    in_shape: tuple[int, int, int],
    num_classes: int,
    *,
    dropout: float = 0.2,
    stochastic_depth: float = 0.2,
    projection: int = 0,
    head_bias: bool = True,
) -> Net:
    """B0's features, global mean, dropout, Linear(1280, 640), ReLU, head; z is the 640-wide layer after its
    ReLU.

        4,832,516 parameters and 42,016 BatchNorm statistics with 8 classes. torchvision's initialisation of
        the features, PyTorch's default for the two linear layers. The paper leaves the ReLU and the dropout
        open; B0's own are taken, and no ImageNet weights. Differs from torchvision: raffed's dropout, also
        for the dropped residual branches, and nothing works in place. projection: width of MOON's, 0 for none
        (`with_projection`).
    """
    channels, height, width = in_shape
    if channels != 3 or min(height, width) < 33:  # below, the last map is 1x1: no BatchNorm on a batch of one
        raise refuse_shape("efficientnet_b0", in_shape, "3xHxW with H and W of at least 33")
    check_range("efficientnet_b0: stochastic_depth", stochastic_depth, 0.0, 0.99)
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
    return with_projection("efficientnet_b0", net, projection)
