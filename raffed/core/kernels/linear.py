"""Linear layers by oneDNN, alone and in a chain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.core.kernels.autograd import Saved, hooked
from raffed.core.losses import mean_nll

# Large linear layers computed by oneDNN.
#
# Some processors need twice as long for the products of torch's own library.


WORTH = 3 << 19  # multiplications of one product; for smaller ones, calling costs more than the kernel saves


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b, computed by oneDNN if that pays. The result equals F.linear up to rounding.

    Measured on one core of an AMD EPYC with AVX-512, 64 samples, forward and backward: 784 x 512 takes 0.70
    ms instead of 1.45 ms, and 512 x 512 takes 0.51 ms instead of 0.98 ms. Only sizes decide, never a timing,
    so that results stay reproducible bit for bit.

    Args:
        x: Inputs [B, I].
        weight: W [O, I].
        bias: b [O], or None.
    """
    if worthwhile(x, weight):
        output: Tensor = _Product.apply(x, weight, bias)
        return output
    return F.linear(x, weight, bias)


def worthwhile(x: Tensor, weight: Tensor) -> bool:
    """Return whether `linear` uses oneDNN for x [B, I] and W [O, I]."""
    return is_large(x, weight) and is_plain(x, weight)


def is_large(x: Tensor, weight: Tensor) -> bool:
    """Return whether the product of x [B, I] and W [O, I] is large enough for oneDNN."""
    return len(x) * weight.numel() >= WORTH


def linear_without_graph(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what `linear` returns, for plain matrices (`is_plain`) where no gradient is recorded."""
    return product(x, weight, bias) if is_large(x, weight) else F.linear(x, weight, bias)


class Linear(nn.Linear):
    """An nn.Linear that computes with `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def choose_products(module: nn.Module) -> int:
    """Let every plain nn.Linear without hooks compute with `linear`, and return how many there are.

    The parameters stay the same objects.
    """
    count = 0
    for parent in list(module.modules()):
        for name, layer in list(parent._modules.items()):  # an object that is used twice, too
            if type(layer) is nn.Linear and not hooked(layer):
                chosen = Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
                chosen.weight, chosen.bias = layer.weight, layer.bias
                setattr(parent, name, chosen.train(layer.training))
                count += 1
    return count


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a bᵀ + bias for any strides, by the operation that torch.compile uses on a CPU.

    A b that is a part of wider rows is copied into one piece, because oneDNN has only a reference kernel for
    it, which takes a thousand times as long.
    """
    b = b if b.is_contiguous() or b.mT.is_contiguous() else b.contiguous()
    output: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return output


class _Product(torch.autograd.Function):
    """`product` with the gradient of F.linear, because torch has no gradient for it.

    If the gradient is itself differentiated, operations that can be differentiated are used.
    """

    @staticmethod
    def forward(ctx: Saved, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Saved, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return gradients(above[0], x, weight, ctx.needs_input_grad, onednn=not torch.is_grad_enabled())


def gradients(
    g: Tensor, x: Tensor, weight: Tensor, wanted: Sequence[bool], *, onednn: bool
) -> tuple[Tensor | None, ...]:
    """Return ∂x = g W, ∂W = gᵀ x and ∂b = Σ g of y = x Wᵀ + b, or None for those that are not wanted.

    Args:
        g: Gradient ∂y [B, O].
        x: Inputs [B, I].
        weight: W [O, I].
        wanted: Which of the three gradients are wanted.
        onednn: Whether oneDNN computes the products. Otherwise they are those of F.linear's backward pass.
    """
    of_x, of_weight, of_bias = wanted
    return (
        (product(g, weight.mT) if onednn else g @ weight) if of_x else None,
        (product(g.mT, x.mT) if onednn else g.mT @ x) if of_weight else None,
        g.sum(0) if of_bias else None,
    )


def is_plain(*tensors: Tensor) -> bool:
    """Return whether all tensors are plain float32 matrices on the CPU.

    This means that neither autocast nor a transform of torch.func is active.
    """
    if torch.is_autocast_enabled("cpu"):
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return all(
        t.dim() == 2 and t.dtype == torch.float32 and t.device.type == "cpu" and not wrapped(t)
        for t in tensors
    )


# Networks of linear layers, computed without torch's modules around them.
#
# One client is computed at a time, or k clients by batched products. vmap makes the same products, but
# every operation goes through torch.func, which takes longer than the product if layers are small. A step
# of 50 clients with an MLP of 4,810 weights takes 1.8 ms under vmap and 0.9 ms here. For the same reason
# the gradients of the cross-entropy are written out without autograd's graph. A batch of 16 then takes 77
# µs instead of 142 µs (on an AMD EPYC).


Make = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Slope = Callable[[Tensor, Tensor], Tensor]  # (gradient of the output, output) → gradient of the input
Wanted = Sequence[bool]  # which of the gradients of input, weight and bias are wanted
aten = torch.ops.aten


@dataclass(frozen=True)
class Elementwise:
    """A layer that works number by number, and its derivative as a function of its output."""

    of: Callable[[Tensor], Tensor]
    slope: Slope


ELEMENTWISE: dict[type[nn.Module], Elementwise] = {
    nn.ReLU: Elementwise(torch.relu, lambda g, y: aten.threshold_backward(g, y, 0)),
    nn.Tanh: Elementwise(torch.tanh, aten.tanh_backward),
    nn.Sigmoid: Elementwise(torch.sigmoid, aten.sigmoid_backward),
}


@dataclass(frozen=True)
class Product:
    """How a linear layer computes y from x, W and b (or None), and the gradients of that.

    `gradients` maps (∂y, x, W, wanted) to the gradients of x, W and b that are wanted. They equal autograd's
    bit for bit.
    """

    of: Make
    gradients: Callable[[Tensor, Tensor, Tensor, Wanted], tuple[Tensor | None, ...]]


def _stacked(columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map columns [g, I, B] of g clients to [g, O, B].

    In this form the gradient of a weight [g, O, I] comes in the weight's own memory order.
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
# The same for plain matrices where no graph is recorded: no autograd node, and one check for all layers
WITHOUT_GRAPH: dict[type[nn.Module], Product] = {
    nn.Linear: PRODUCTS[nn.Linear],
    Linear: Product(
        linear_without_graph, lambda g, x, w, wanted: gradients(g, x, w, wanted, onednn=is_large(x, w))
    ),
}
STACKED = Product(_stacked, _stacked_gradients)


class LinearChain:
    """A body that flattens its input and consists of linear and element-wise layers, and a linear head.

    Args:
        layers: The layers of the body, each the name of a linear layer or an element-wise layer.
        kind: The class of the linear layers.
    """

    def __init__(self, layers: tuple[str | Elementwise, ...], kind: type[nn.Module]) -> None:
        self._layers: tuple[str | Elementwise, ...] = (*layers, "head")
        self._product, self._without_graph = PRODUCTS[kind], WITHOUT_GRAPH[kind]

    def alone(self, w: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits [B, C], z [B, D]) of a batch x [B, ...], with the bits of the modules."""
        *_, z, logits = self._values(self._product, w, x.flatten(1))
        return logits, z

    def stacked(self, w: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits [g, B, C], z [g, B, D]) of g clients.

        Their batches are x [g, B, ...], and each weight has the shape [g, ...].
        """
        *_, z, logits = self._values(STACKED, w, x.flatten(2).mT)
        return logits.mT, z.mT

    @torch.no_grad()
    def gradients(
        self, w: Mapping[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the cross-entropy of a batch and its gradients with respect to the weights `names`.

        The batch is x [B, ...] and y [B]. The gradients equal autograd's bit for bit.
        """
        x = x.flatten(1)
        product = self._without_graph if is_plain(x) else self._product
        values = self._values(product, w, x)
        loss, g = _cross_entropy(values[-1], y)
        return loss, self._descended(product, w, values, g, names)

    @torch.no_grad()
    def stacked_gradients(
        self, w: Mapping[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return cross-entropies [g] of g clients, and gradients with respect to each one's weights."""
        values = self._values(STACKED, w, x.flatten(2).mT)
        losses, g = _cross_entropy(values[-1].mT, y)
        return losses, self._descended(STACKED, w, values, g.mT, names)

    def _values(self, product: Product, w: Mapping[str, Tensor], x: Tensor) -> list[Tensor]:
        """Return x and the output of every layer."""
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
        """Return the gradients of `names`, from the logits down to the lowest of these layers."""
        slopes: dict[str, Tensor] = {}
        for place in reversed(range(len(self._layers))):
            layer, missing = self._layers[place], len(names) - len(slopes)
            if not isinstance(layer, str):
                g = layer.slope(g, values[place + 1])
                continue
            keys = [f"{layer}.weight", f"{layer}.bias"]
            asked = [name in names for name in keys]
            below, *grads = product.gradients(g, values[place], w[keys[0]], (missing > sum(asked), *asked))
            slopes |= {name: slope for name, slope in zip(keys, grads, strict=True) if slope is not None}
            if below is None:
                break
            g = below
        return [slopes[name] for name in names]


def _cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of logits [..., B, C] (core/losses.py) and its gradient.

    The gradient is −1/B at the label, passed back through log_softmax.
    """
    scores = torch.log_softmax(logits, -1)
    loss = F.nll_loss(scores, y) if scores.dim() == 2 else mean_nll(scores, y)
    at_label = torch.zeros_like(scores).scatter_(-1, y[..., None], -1.0 / y.shape[-1])
    return loss, aten._log_softmax_backward_data(at_label, scores, scores.dim() - 1, scores.dtype)


def chain_of(module: nn.Module) -> LinearChain | None:
    """Return the network as a chain, or None if it has another kind of layer or a layer with hooks.

    Types are compared exactly, because a subclass may compute something else.
    """
    body, head = list(_leaves("body", module.get_submodule("body"))), type(module.get_submodule("head"))
    if not body or not _flattens(body[0][1]) or head not in PRODUCTS or hooked(*module.modules()):
        return None
    if any(type(layer) is not head and type(layer) not in ELEMENTWISE for _, layer in body[1:]):
        return None
    return LinearChain(tuple(ELEMENTWISE.get(type(layer), name) for name, layer in body[1:]), head)


def _leaves(name: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested Sequentials in order. Any other module counts as one layer."""
    if type(layer) is not nn.Sequential:
        yield name, layer
        return
    for child, inner in layer._modules.items():  # named_children leaves out what stands there a second time
        yield from _leaves(f"{name}.{child}", inner)


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
