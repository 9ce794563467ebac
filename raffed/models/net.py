"""The one type of all networks: a body that makes features, and a linear head that makes logits."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from raffed.config.validation import Value
from raffed.errors import UsageError, check_range

# Dropout layers of the networks: a checked probability, and whole samples for stochastic depth.


class Dropout(nn.modules.dropout._DropoutNd):
    """Set each element to 0 with probability p, and divide the others by 1 - p.

    With `rows`, all elements of a sample are kept or dropped together (stochastic depth, Huang et al. 2016).
    In evaluation mode, or with p = 0, the input is returned as it is.

    By itself the layer draws from torch's global generator. In a federation, raffed replaces it by a layer
    that draws from the client's own stream (core/training/seeded_dropout.py).
    """

    def __init__(self, p: float, rows: bool = False) -> None:
        check_range("dropout", p, 0.0, 0.99)
        super().__init__(p)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        size = (len(x), *[1] * (x.dim() - 1)) if self.rows else tuple(x.shape)
        return torch.where(torch.rand(size, device=x.device) >= self.p, x / (1 - self.p), 0.0)


class Net(nn.Module):
    """A network x [B, ...] -> (logits [B, C], z [B, D]) with z = body(x) and logits = head(z).

    z is what papers call the feature: the input of the last layer (h in MAP; z in FedMR and GLDP). The names
    of all parameters and buffers start with `body.` or `head.`. The only buffers are those of BatchNorm.

    Under `torch.func`, pass copies of the buffers of a BatchNorm network in training mode as arguments of the
    differentiated function. BatchNorm updates running_mean, running_var and num_batches_tracked in place,
    with one entry for each client, and torch raises an error if such a buffer is captured.
    """

    body: nn.Module
    head: nn.Linear
    feature_dim: int
    rewritable: bool = True  # whether layers may be replaced by faster ones (core/kernels)
    constants: frozenset[str] = frozenset()  # names of buffers that are neither trained nor sent
    last_layers: tuple[Value, ...] = ()  # what was done to them (models/last_layers.py)

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.feature_dim = head.in_features

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.body(x)
        return self.head(z), z

    def set_head_bias(self, wanted: bool, title: str) -> None:
        """Take the head's bias away, if it has one and none is wanted.

        Raises:
            UsageError: A bias is wanted, and the head has none.
        """
        if wanted and self.head.bias is None:
            raise UsageError(f"{title}: head_bias = true, but its head has no bias; leave it out")
        if not wanted:
            self.head.register_parameter("bias", None)


def with_projection(net: Net, width: int, hidden: int = 0) -> Net:
    """Insert MOON's projection (Linear, ReLU, Linear to `width`) between body and head, as in MOON's code.

    z is then the signed projection. The layers have PyTorch's default initialisation.

    Args:
        net: The network without a projection.
        width: Width of the projection; 0 returns `net` as it is.
        hidden: Width of the projection's hidden layer; 0: that of the features before it.

    Raises:
        UsageError: The hidden layer has a width, and there is no projection.
    """
    if hidden and not width:
        raise UsageError(
            f"projection_hidden = {hidden} has no effect without a projection; also give projection, such as "
            "projection=256"
        )
    if not width:
        return net
    last, head = net.feature_dim, nn.Linear(width, net.head.out_features, bias=net.head.bias is not None)
    middle = hidden or last
    layers = OrderedDict(fc1=nn.Linear(last, middle), relu=nn.ReLU(), fc2=nn.Linear(middle, width))
    return Net(nn.Sequential(OrderedDict(encoder=net.body, projection=nn.Sequential(layers))), head)


def with_norm(net: Net, name: str, norm: str, place: str) -> Net:
    """Put a LayerNorm without weights after or before every ReLU of the body.

    It is over all channels and positions of a sample. The parameters keep their names and their values.

    Args:
        net: The network, whose body is a chain of layers, without a projection.
        name: What messages call it.
        norm: "layer", or "none", which returns `net` as it is.
        place: "after" or "before" the activation.

    Raises:
        UsageError: There is no norm, and its place is given.
    """
    if norm == "none":
        if place != "after":
            raise UsageError(
                f"{name}: norm_place = {place!r} has no effect with norm = 'none'; also give norm = layer, "
                f"or leave it out"
            )
        return net
    layers, norm_layer = OrderedDict[str, nn.Module](), nn.Module()
    for child, layer in net.body.named_children():
        if isinstance(layer, nn.Conv2d):
            norm_layer = nn.GroupNorm(1, layer.out_channels, affine=False)
        elif isinstance(layer, nn.Linear):
            norm_layer = nn.LayerNorm(layer.out_features, elementwise_affine=False)
        both = [(child, layer), (child.replace("relu", "norm"), norm_layer)]
        wanted = both if place == "after" else both[::-1]
        layers.update(wanted if isinstance(layer, nn.ReLU) else both[:1])
    return Net(nn.Sequential(layers), net.head)


def refuse_shape(name: str, in_shape: tuple[int, int, int], takes: str) -> UsageError:
    """Return the error for images that network `name` does not take; `takes` describes those that it does."""
    got = "x".join(map(str, in_shape))
    return UsageError(f"{name} cannot take {got} inputs (channels x height x width); it takes {takes}")


def check_side(name: str, in_shape: tuple[int, int, int], least: int) -> None:
    """Refuse images of which a side has fewer than `least` pixels."""
    if min(in_shape[1:]) < least:
        raise refuse_shape(name, in_shape, f"KxHxW with H and W of at least {least}")


def convolved(
    in_shape: Sequence[int],
    widths: Sequence[int],
    side: int,
    paddings: Sequence[int] = (0, 0),
    pool_padding: int = 0,
) -> tuple[OrderedDict[str, nn.Module], int]:
    """Return convolutions, each before ReLU and a 2x2 max-pool, and how many numbers they make of an image.

    Args:
        in_shape: Channels, height and width of the image.
        widths: Channels that each convolution makes.
        side: Side of the convolutions.
        paddings: Padding of each convolution.
        pool_padding: Padding of each max-pool.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels, *sides = in_shape
    for i, (width, padding) in enumerate(zip(widths, paddings, strict=True), start=1):
        layers[f"conv{i}"] = nn.Conv2d(channels, width, side, padding=padding)
        layers[f"relu{i}"] = nn.ReLU()
        layers[f"pool{i}"] = nn.MaxPool2d(2, padding=pool_padding)
        channels, sides = width, [(size + 2 * (padding + pool_padding) - side + 1) // 2 for size in sides]
    return layers, channels * math.prod(sides)


def init_map(net: nn.Module) -> None:
    """Initialise as MAP's code does: `init_convs`, linear weights from N(0, 0.01^2), and linear biases 0."""
    init_convs(net)
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.01)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def init_convs(net: nn.Module) -> None:
    """Initialise convolutions from N(0, 2 / fan_out) with bias 0, and BatchNorm with weight 1 and bias 0.

    fan_out is the number of output channels times k x k.
    """
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


class GridMean(nn.Module):
    """Adaptive mean pooling [B, K, H, W] -> [B, K, side, side], with the windows of `nn.AdaptiveAvgPool2d`.

    Cell i averages the rows floor(i H / side) to ceil((i + 1) H / side) - 1. It is computed as two matrix
    products P_H x P_W^T, because the gradient of torch's own kernel is not deterministic on CUDA.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        return self._weights(x, x.shape[-2]) @ x @ self._weights(x, x.shape[-1]).mT

    def _weights(self, x: Tensor, size: int) -> Tensor:
        """[side, size]: row i holds 1 / (window length) over window i, else 0."""
        cell = torch.arange(self.side, device=x.device)[:, None]
        pixel = torch.arange(size, device=x.device)
        inside = (pixel >= cell * size // self.side) & (pixel * self.side < (cell + 1) * size)
        return (inside / inside.sum(1, keepdim=True)).to(x.dtype)


class GlobalMean(nn.Module):
    """Mean over the map, [B, K, H, W] -> [B, K]. A batch of one keeps its first axis."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)
