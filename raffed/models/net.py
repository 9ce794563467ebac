"""The one type of every network here: a body that makes features, a linear head that makes logits."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from raffed.errors import UsageError, check_range


class Net(nn.Module):
    """x [B, ...] -> (logits [B, C], z [B, D]) with z = body(x) and logits = head(z).

    z is the papers' feature: the input of the last layer (MAP's h, FedMR's and GLDP's z). Every parameter and
    buffer name starts with `body.` or `head.`; buffers, where there are any, are BatchNorm's. Under
    `torch.func`, pass the buffers of a train-mode BatchNorm net as arguments of the function that is
    differentiated, and pass copies: running_mean, running_var and num_batches_tracked are updated in place,
    one entry a client, and a captured buffer is an error there.
    """

    body: nn.Module
    head: nn.Linear
    feature_dim: int

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.feature_dim = head.in_features

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.body(x)
        return self.head(z), z


def with_projection(name: str, net: Net, width: int) -> Net:
    """MOON's code: Linear, ReLU, Linear to `width` between body and head, which reads them; 0: `net` as it
    is.

        z is then the projection, signed; PyTorch's default initialisation.
    """
    check_range(f"{name}: projection", width, 0, 2**16)
    if not width:
        return net
    last, head = net.feature_dim, nn.Linear(width, net.head.out_features, bias=net.head.bias is not None)
    layers = OrderedDict(fc1=nn.Linear(last, last), relu=nn.ReLU(), fc2=nn.Linear(last, width))
    return Net(nn.Sequential(OrderedDict(encoder=net.body, projection=nn.Sequential(layers))), head)


def refuse_shape(name: str, in_shape: tuple[int, int, int], takes: str) -> UsageError:
    """The error for inputs that network `name` cannot take; `takes` says which ones it can."""
    got = "x".join(map(str, in_shape))
    return UsageError(f"{name} cannot take {got} inputs (channels x height x width); it takes {takes}")


def init_map(net: nn.Module) -> None:
    """Li et al.'s initialisation (MAP's code): `init_convs`, then linear weights N(0, 0.01^2) and biases
    0.
    """
    init_convs(net)
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.01)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def init_convs(net: nn.Module) -> None:
    """Convolutions N(0, 2 / fan_out), fan_out = channels out x k x k, bias 0; BatchNorm weight 1, bias 0."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


class GridMean(nn.Module):
    """Adaptive mean pooling [B, K, H, W] -> [B, K, side, side] as P_H x P_W^T, with `nn.AdaptiveAvgPool2d`'s
    windows.

        Cell i averages rows floor(i H / side) to ceil((i + 1) H / side) - 1. Two products instead of torch's
        kernel because that one's gradient is not deterministic on CUDA.
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
    """[B, K, H, W] -> [B, K]; a batch of one keeps its axis."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)
