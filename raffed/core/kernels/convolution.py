"""Convolutions by the compiled kernel in _convolution.c, for one client or for a stack of them.

The results equal torch's up to rounding. So a run names this arithmetic (`numerics.convolutions`), and
nothing falls back to torch where the kernel was not built.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed.core.kernels.autograd import Dims, Mapped, Operation, Saved, clients_first, hooked

# Fill up narrow convolutions with channels of zeros, so that layers between them work on whole vectors.


VECTOR = 8  # float32 numbers in a register of AVX2


class FilledConv2d(nn.Conv2d):
    """A Conv2d whose weights and biases are filled up with zeros for additional channels.

    Its parameters have the shapes, and get the gradients, of a plain Conv2d.

    Args:
        conv: The convolution whose settings and parameters it takes over. Additional channels that this one
            has already are kept.
        more_in: Number of additional input channels.
        more_out: Number of additional output channels.
    """

    more_in = 0
    more_out = 0

    def __init__(self, conv: nn.Conv2d, *, more_in: int = 0, more_out: int = 0) -> None:
        (high, wide), (down, right), (rows, columns) = conv.kernel_size, conv.stride, conv.dilation
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            (high, wide),
            (down, right),
            conv.padding if isinstance(conv.padding, str) else (conv.padding[0], conv.padding[1]),
            (rows, columns),
            conv.groups,
            conv.bias is not None,
            conv.padding_mode,
            device="meta",
        )
        self.weight, self.bias = conv.weight, conv.bias
        already = (conv.more_in, conv.more_out) if isinstance(conv, FilledConv2d) else (0, 0)
        self.more_in, self.more_out = already[0] + more_in, already[1] + more_out
        self.train(conv.training)

    def forward(self, x: Tensor) -> Tensor:
        weight = F.pad(self.weight, (0, 0, 0, 0, 0, self.more_in, 0, self.more_out))
        bias = None if self.bias is None else F.pad(self.bias, (0, self.more_out))
        wide: Tensor = self._conv_forward(x, weight, bias)
        return wide


def fill_channels(module: nn.Module) -> int:
    """Fill up narrow channels between two convolutions to VECTOR, and return the number of places.

    It is done between every two convolutions with fewer channels and nothing but ReLUs and max-pools between
    them. Layers with hooks are left alone.

    The additional channels hold 0 and have no weight in the next layer. So outputs and gradients stay the
    same, except for the order in which a kernel adds. Measured on one core with 64 images of 32x32, forward
    and backward: a channels-last max-pool over 8 channels takes 0.7 ms, and over 6 channels 1.1 ms. The
    convolution before it takes 1.5 ms instead of 2.6 ms, and LeNet's step 6.2 ms instead of 7.0 ms.
    """
    places = 0
    for inner in (m for m in module.modules() if isinstance(m, nn.Sequential)):
        layers = inner._modules
        before = ""
        for name, layer in list(layers.items()):
            if type(layer) is nn.Conv2d and layer.groups == 1 and not hooked(layer):
                above = layers.get(before)
                if isinstance(above, nn.Conv2d) and above.out_channels < VECTOR:
                    more = VECTOR - above.out_channels
                    layers[before] = FilledConv2d(above, more_out=more)
                    layers[name] = FilledConv2d(layer, more_in=more)
                    places += 1
                before = name
            elif type(layer) not in (nn.ReLU, nn.MaxPool2d) or (layer is not None and hooked(layer)):
                before = ""
    return places


try:
    import raffed.core.kernels._convolution as compiled
except ImportError:  # there was no compiler when raffed was installed, or it was built for another system
    built = False
else:
    built = compiled.usable()

LANES = 8  # float32 numbers in a vector
LARGEST = 1 << 18  # weights of a layer; those of larger ones leave the processor's cache, and torch is faster

Padding = tuple[int, int]


class CompiledConv2d(FilledConv2d):
    """A Conv2d that is computed by the kernel, on the CPU in float32, and otherwise by torch.

    It takes over the parameters of a convolution that `fits`. Measured on one core of an AMD EPYC without
    AVX-512, forward and backward, 10 images: 1 to 6 channels of 28 x 28 by 5 x 5 take 0.14 ms instead of
    0.47 ms, 6 to 16 channels of 14 x 14 take 0.23 ms instead of 0.80 ms, and 32 to 64 channels of 30 x 30 by
    3 x 3 take 9.7 ms instead of 14.0 ms.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not built or not self._takes(x):
            return super().forward(x)
        assert not isinstance(self.padding, str)
        padding = self.padding[0], self.padding[1]
        return Convolution.of(x, self.weight, self.bias, self.more_out, padding)

    def _takes(self, x: Tensor) -> bool:
        """Return whether the kernel takes x [N, C, H, W]: float32 on the CPU, and as large as it needs."""
        if x.dim() != 4 or x.dtype != torch.float32 or x.device.type != "cpu" or 0 in x.shape:
            return False
        if torch.is_autocast_enabled("cpu") or x.shape[1] != self.in_channels + self.more_in:
            return False
        assert not isinstance(self.padding, str)
        sizes = zip(x.shape[2:], self.padding, self.kernel_size, strict=True)
        return all(size + 2 * pad >= kernel for size, pad, kernel in sizes)


def choose_convolutions(module: nn.Module) -> int:
    """Let every convolution that fits be computed by the kernel, and return how many there are.

    The parameters stay the same objects.
    """
    count = 0
    for parent in list(module.modules()):
        for name, layer in list(parent._modules.items()):  # an object that is used twice, too
            if isinstance(layer, nn.Conv2d) and fits(layer):
                setattr(parent, name, CompiledConv2d(layer))
                count += 1
    return count


def fits(layer: nn.Conv2d) -> bool:
    """Return whether the kernel computes a convolution.

    It computes those of stride 1 without groups, dilation or hooks, whose outputs fill whole vectors, whose
    zeros around an image are fewer than the kernel's rows and columns, and whose weights are not many. Only
    sizes decide, never a timing, so that results stay reproducible bit for bit.
    """
    more = layer.more_out if isinstance(layer, FilledConv2d) else 0
    return (
        type(layer) in (nn.Conv2d, FilledConv2d)
        and not hooked(layer)
        and (layer.groups, layer.padding_mode) == (1, "zeros")
        and all(n == 1 for n in (*layer.stride, *layer.dilation))
        and not isinstance(layer.padding, str)
        and all(pad < kernel for pad, kernel in zip(layer.padding, layer.kernel_size, strict=True))
        and not (layer.out_channels + more) % LANES
        and layer.weight.numel() <= LARGEST
    )


class _Saved(Saved, Protocol):
    """The context of these operations."""

    sizes: tuple[int, ...]
    padding: Padding


# Three bilinear operations that are each other's gradients, so every one can be differentiated any number of
# times. Images are x [..., N, C, H, W] with any number of axes of clients before them, weights
# w [..., O, c, kh, kw] and biases b [..., O]. C may exceed c, and there may be `more` outputs than O: both
# are filled up with zeros.


class Convolution(Operation):
    """y = x ∗ w + b."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, b: Tensor | None, more: int, padding: Padding) -> Tensor:
        x, w = _rows(x), w.contiguous()
        b = None if b is None else b.contiguous()
        clients, sizes = _sizes(x.shape, w, w.shape[-4] + more, padding)
        y = x.new_empty(*x.shape[:-3], *_seen(x.shape, w, padding), w.shape[-4] + more)
        compiled.forward(
            x.data_ptr(), w.data_ptr(), 0 if b is None else b.data_ptr(), y.data_ptr(), clients, *sizes
        )
        return y.movedim(-1, -3)

    @staticmethod
    def setup_context(
        ctx: _Saved, inputs: tuple[Tensor, Tensor, Tensor | None, int, Padding], output: Tensor
    ) -> None:
        x, w, _, _, ctx.padding = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: _Saved, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        of_x, of_w, of_b = ctx.needs_input_grad[:3]
        gx = InputGradient.of(above[0], w, tuple(x.shape[-3:]), ctx.padding) if of_x else None
        gw, gb = (
            WeightGradient.pair(x, above[0], tuple(w.shape[-4:]), ctx.padding)
            if of_w or of_b
            else (None, None)
        )
        return gx, gw, gb if of_b else None, None, None

    @staticmethod
    def vmap(
        info: Mapped, dims: Dims, x: Tensor, w: Tensor, b: Tensor | None, more: int, padding: Padding
    ) -> tuple[Tensor, int]:
        x, w = (clients_first(t, dim, info.batch_size) for t, dim in zip((x, w), dims, strict=False))
        return Convolution.of(
            x, w, None if b is None else clients_first(b, dims[2], info.batch_size), more, padding
        ), 0


class InputGradient(Operation):
    """The gradient of x with g as the gradient of y, for x of the shape `image` [C, H, W]."""

    @staticmethod
    def forward(g: Tensor, w: Tensor, image: tuple[int, int, int], padding: Padding) -> Tensor:
        g, w = _rows(g), w.contiguous()
        filled = -(-image[0] // LANES) * LANES
        x = g.new_empty(*g.shape[:-3], *image[1:], filled)
        clients, sizes = _sizes(x.shape, w, g.shape[-1], padding)
        compiled.to_input(g.data_ptr(), w.data_ptr(), x.data_ptr(), clients, *sizes)
        return x[..., : image[0]].movedim(-1, -3)

    @staticmethod
    def setup_context(
        ctx: _Saved, inputs: tuple[Tensor, Tensor, tuple[int, int, int], Padding], output: Tensor
    ) -> None:
        g, w, _, ctx.padding = inputs
        ctx.save_for_backward(g, w)

    @staticmethod
    def backward(ctx: _Saved, *above: Tensor) -> tuple[Tensor | None, ...]:
        g, w = ctx.saved_tensors
        of_g, of_w = ctx.needs_input_grad[:2]
        more = g.shape[-3] - w.shape[-4]
        gg = Convolution.of(above[0], w, None, more, ctx.padding) if of_g else None
        gw = WeightGradient.pair(above[0], g, tuple(w.shape[-4:]), ctx.padding)[0] if of_w else None
        return gg, gw, None, None

    @staticmethod
    def vmap(
        info: Mapped, dims: Dims, g: Tensor, w: Tensor, image: tuple[int, int, int], padding: Padding
    ) -> tuple[Tensor, int]:
        g, w = (clients_first(t, dim, info.batch_size) for t, dim in zip((g, w), dims, strict=False))
        return InputGradient.of(g, w, image, padding), 0


class WeightGradient(Operation):
    """The gradients of w, of the shape `kernel` [O, c, kh, kw], and of b, with g as the gradient of y."""

    @staticmethod
    def forward(x: Tensor, g: Tensor, kernel: tuple[int, ...], padding: Padding) -> tuple[Tensor, Tensor]:
        x, g = _rows(x), _rows(g)
        gw = x.new_empty(*x.shape[:-4], *kernel)
        gb = x.new_empty(*x.shape[:-4], kernel[0])
        clients, sizes = _sizes(x.shape, gw, g.shape[-1], padding)
        compiled.to_weight(x.data_ptr(), g.data_ptr(), gw.data_ptr(), gb.data_ptr(), clients, *sizes)
        return gw, gb

    @staticmethod
    def setup_context(
        ctx: _Saved, inputs: tuple[Tensor, Tensor, tuple[int, ...], Padding], output: tuple[Tensor, Tensor]
    ) -> None:
        x, g, kernel, ctx.padding = inputs
        ctx.sizes = kernel
        ctx.save_for_backward(x, g)

    @staticmethod
    def backward(ctx: _Saved, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, g = ctx.saved_tensors
        of_x, of_g = ctx.needs_input_grad[:2]
        gx = InputGradient.of(g, above[0], tuple(x.shape[-3:]), ctx.padding) if of_x else None
        more = g.shape[-3] - ctx.sizes[0]
        gg = Convolution.of(x, above[0], above[1], more, ctx.padding) if of_g else None
        return gx, gg, None, None

    @staticmethod
    def vmap(
        info: Mapped, dims: Dims, x: Tensor, g: Tensor, kernel: tuple[int, ...], padding: Padding
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        x, g = (clients_first(t, dim, info.batch_size) for t, dim in zip((x, g), dims, strict=False))
        return WeightGradient.pair(x, g, kernel, padding), (0, 0)


def _rows(x: Tensor) -> Tensor:
    """Return images [..., N, C, H, W] as [..., N, H, W, C]. Channels-last images are not copied."""
    return x.movedim(-3, -1).contiguous()


def _seen(x: torch.Size, w: Tensor, padding: Padding) -> tuple[int, int]:
    """Return the height and width of the output of x [..., H, W, C]."""
    return (x[-3] + 2 * padding[0] - w.shape[-2] + 1, x[-2] + 2 * padding[1] - w.shape[-1] + 1)


def _sizes(x: torch.Size, w: Tensor, out: int, padding: Padding) -> tuple[int, tuple[int, ...]]:
    """Return the number of clients, and the sizes in the order of the kernel."""
    clients = x[:-4].numel()
    o, c, high, wide = w.shape[-4:]
    return clients, (*x[-4:-1], c, x[-1], o, out, high, wide, *padding)
