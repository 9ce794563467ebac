"""Networks of linear layers without torch's modules around them: one client at a time, or k clients by
batched products.

vmap makes the same products, but every operation goes through torch.func, which for small layers takes longer
than the product: a step of 50 clients with an MLP of 4,810 weights takes 1.8 ms under vmap, 0.9 so. For the
same reason the gradients of the cross-entropy alone are written out, without autograd's graph: a batch of 16
takes 77 µs instead of 142 (an AMD EPYC).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.core.kernels.onednn_linear import Linear, gradients, linear, worthwhile
from raffed.core.kernels.relu_after_pool import hooked
from raffed.core.losses import mean_nll

Make = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Slope = Callable[[Tensor, Tensor], Tensor]  # ∂output, output → ∂input
Wanted = Sequence[bool]  # whether the gradients by a layer's input, weight and bias are
aten = torch.ops.aten


@dataclass(frozen=True)
class Elementwise:
    """A layer that works number by number, and its derivative, told by its output."""

    of: Callable[[Tensor], Tensor]
    slope: Slope


ELEMENTWISE: dict[type[nn.Module], Elementwise] = {
    nn.ReLU: Elementwise(torch.relu, lambda g, y: aten.threshold_backward(g, y, 0)),
    nn.Tanh: Elementwise(torch.tanh, aten.tanh_backward),
    nn.Sigmoid: Elementwise(torch.sigmoid, aten.sigmoid_backward),
}


@dataclass(frozen=True)
class Product:
    """How a linear layer's x, W and b (or None) become y. gradients: (∂y, x, W, wanted) → the gradients by x,
    W and b that are wanted, in the bits of autograd's.
    """

    of: Make
    gradients: Callable[[Tensor, Tensor, Tensor, Wanted], tuple[Tensor | None, ...]]


def _stacked(columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Columns [g, I, B] of g clients → [g, O, B], so that the gradient of a weight [g, O, I] comes in the
    weight's own order.
    """
    return torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias[..., None], weight, columns)


def _stacked_gradients(
    g: Tensor, columns: Tensor, weight: Tensor, wanted: Wanted
) -> tuple[Tensor | None, ...]:
    of_columns, of_weight, of_bias = wanted
    return (
        torch.bmm(weight.mT, g) if of_columns else None,
        torch.bmm(g, columns.mT) if of_weight else None,
        g.sum(2) if of_bias else None,
    )


PRODUCTS: dict[type[nn.Module], Product] = {
    nn.Linear: Product(F.linear, lambda g, x, w, wanted: gradients(g, x, w, wanted, onednn=False)),
    Linear: Product(linear, lambda g, x, w, wanted: gradients(g, x, w, wanted, onednn=worthwhile(x, w))),
}
STACKED = Product(_stacked, _stacked_gradients)


class LinearChain:
    """A body that flattens its input and is linear and element-wise layers from there on; then the head,
    which is linear.

        `layers`: of the body, the name of a linear one, or an element-wise one.
    """

    def __init__(self, layers: tuple[str | Elementwise, ...], product: Product) -> None:
        self._layers: tuple[str | Elementwise, ...] = (*layers, "head")
        self._product = product

    def alone(self, w: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(logits [B, C], z [B, D]) of a batch x [B, ...]: the operations of the modules, so the same
        bits.
        """
        *_, z, logits = self._values(self._product, w, x.flatten(1))
        return logits, z

    def stacked(self, w: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(logits [g, B, C], z [g, B, D]) of g clients' batches x [g, B, ...] under their weights, each
        [g, ...].
        """
        *_, z, logits = self._values(STACKED, w, x.flatten(2).mT)
        return logits.mT, z.mT

    @torch.no_grad()
    def gradients(
        self, w: Mapping[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """The cross-entropy of a batch x [B, ...], y [B], and its gradients by the weights `names`, in their
        order: the bits of autograd's.
        """
        values = self._values(self._product, w, x.flatten(1))
        loss, g = _cross_entropy(values[-1], y)
        return loss, self._descended(self._product, w, values, g, names)

    @torch.no_grad()
    def stacked_gradients(
        self, w: Mapping[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """The same of g clients: cross-entropies [g], and each one's gradients by its own weights."""
        values = self._values(STACKED, w, x.flatten(2).mT)
        losses, g = _cross_entropy(values[-1].mT, y)
        return losses, self._descended(STACKED, w, values, g.mT, names)

    def _values(self, product: Product, w: Mapping[str, Tensor], x: Tensor) -> list[Tensor]:
        """x, and what every layer makes of what is before it."""
        values = [x]
        for layer in self._layers:
            if isinstance(layer, str):
                values.append(product.of(values[-1], w[f"{layer}.weight"], w.get(f"{layer}.bias")))
            else:
                values.append(layer.of(values[-1]))
        return values

    def _descended(
        self,
        product: Product,
        w: Mapping[str, Tensor],
        values: list[Tensor],
        g: Tensor,
        names: Collection[str],
    ) -> list[Tensor]:
        """The gradients by `names`, from the one by the logits, layer by layer down to the lowest of them."""
        found: dict[str, Tensor] = {}
        for place in reversed(range(len(self._layers))):
            layer, missing = self._layers[place], len(names) - len(found)
            if not isinstance(layer, str):
                g = layer.slope(g, values[place + 1])
                continue
            mine = [f"{layer}.weight", f"{layer}.bias"]
            asked = [name in names for name in mine]
            below, *own = product.gradients(g, values[place], w[mine[0]], (missing > sum(asked), *asked))
            found |= {name: slope for name, slope in zip(mine, own, strict=True) if slope is not None}
            if below is None:
                break
            g = below
        return [found[name] for name in names]


def _cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """maths.cross_entropy of logits [..., B, C], and its gradient by them: −1/B at the label, through
    log_softmax.
    """
    scores = torch.log_softmax(logits, -1)
    loss = F.nll_loss(scores, y) if scores.dim() == 2 else mean_nll(scores, y)
    at_label = torch.zeros_like(scores).scatter_(-1, y[..., None], -1.0 / y.shape[-1])
    return loss, aten._log_softmax_backward_data(at_label, scores, scores.dim() - 1, scores.dtype)


def chain_of(module: nn.Module) -> LinearChain | None:
    """The network as a chain; None if it has any other layer, or one with hooks. Exact types: a subclass
    may do else.
    """
    body, head = list(_leaves("body", module.get_submodule("body"))), type(module.get_submodule("head"))
    if not body or not _flattens(body[0][1]) or head not in PRODUCTS or hooked(*module.modules()):
        return None
    if any(type(layer) is not head and type(layer) not in ELEMENTWISE for _, layer in body[1:]):
        return None
    return LinearChain(tuple(ELEMENTWISE.get(type(layer), name) for name, layer in body[1:]), PRODUCTS[head])


def _leaves(name: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested Sequentials in order; whatever is none counts as one layer."""
    if type(layer) is not nn.Sequential:
        yield name, layer
        return
    for child, inner in layer.named_children():
        yield from _leaves(f"{name}.{child}", inner)


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
