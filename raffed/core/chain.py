"""Networks of linear layers without torch's modules around them: one client at a time, or k clients by batched products.

vmap makes the same products, but every operation goes through torch.func, which for small layers takes longer than the
product: a step of 50 clients with an MLP of 4,810 weights takes 1.8 ms under vmap, 0.9 so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.core.linear import Linear, linear
from raffed.core.pooling import hooked

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
ELEMENTWISE: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.ReLU: torch.relu, nn.Tanh: torch.tanh, nn.Sigmoid: torch.sigmoid,
}  # fmt: skip
PRODUCTS: dict[type[nn.Module], Product] = {nn.Linear: F.linear, Linear: linear}


class Chain:
    """A body that flattens its input and is linear and element-wise layers from there on; then the head, which is linear.

    `layers`: of the body, the name of a linear one, the function of an element-wise one. `product`: x, weight and bias (or
    None) of a linear one → its output.
    """

    def __init__(self, layers: tuple[str | Callable[[Tensor], Tensor], ...], product: Product = F.linear) -> None:
        self._layers, self._product = layers, product

    def alone(self, w: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(logits [B, C], z [B, D]) of a batch x [B, ...]: the operations of the modules, so the same bits."""
        z = x.flatten(1)
        for layer in self._layers:
            z = self._linear(w, layer, z) if isinstance(layer, str) else layer(z)
        return self._linear(w, "head", z), z

    def _linear(self, w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        return self._product(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def stacked(self, w: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(logits [g, B, C], z [g, B, D]) of g clients' batches x [g, B, ...] under their weights, each [g, ...]."""
        columns = x.flatten(2).mT  # [g, D, B]: so the gradient of a weight comes in the weight's own order
        for layer in self._layers:
            columns = _product(w, layer, columns) if isinstance(layer, str) else layer(columns)
        return _product(w, "head", columns).mT, columns.mT


def chain_of(module: nn.Module) -> Chain | None:
    """The network as a chain; None if it has any other layer, or one with hooks. Exact types: a subclass may do else."""
    body, head = list(_leaves("body", module.get_submodule("body"))), type(module.get_submodule("head"))
    if not body or not _flattens(body[0][1]) or head not in PRODUCTS or hooked(*module.modules()):
        return None
    if any(type(layer) is not head and type(layer) not in ELEMENTWISE for _, layer in body[1:]):
        return None
    return Chain(tuple(ELEMENTWISE.get(type(layer), name) for name, layer in body[1:]), PRODUCTS[head])


def _product(w: Mapping[str, Tensor], name: str, columns: Tensor) -> Tensor:
    weight, bias = w[f"{name}.weight"], w.get(f"{name}.bias")
    return torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias[..., None], weight, columns)


def _leaves(name: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested Sequentials in order; whatever is none counts as one layer."""
    if type(layer) is not nn.Sequential:
        yield name, layer
        return
    for child, inner in layer.named_children():
        yield from _leaves(f"{name}.{child}", inner)


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
