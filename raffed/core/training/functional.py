"""A network in training mode as a function: of the live weights, or of other weights that are arguments."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from raffed.core.kernels import has_tied_weights
from raffed.core.kernels.linear_chain import LinearChain
from raffed.core.losses import is_stacked
from raffed.core.params import Params
from raffed.core.training.seeded_dropout import Noise

Tensors = dict[str, Tensor]
Outputs = tuple[Tensor, Tensor]  # logits [B, C] and features z [B, D]


class FunctionalNetwork:
    """A module as a function from (weights, inputs) to (logits [B, C], z [B, D]).

    Logits and z are float32, also if the module computes in bfloat16.

    Args:
        module: The network, whose parameters and buffers have their final places.
        chain: The same network as a chain of linear layers, or None.
        noise: Where its dropout layers get random numbers.
        low: Whether it computes under autocast to bfloat16.
        device: Where it computes.
    """

    def __init__(
        self, module: nn.Module, chain: LinearChain | None, noise: Noise, *, low: bool, device: torch.device
    ) -> None:
        self.module, self.chain, self.noise, self.low = module, chain, noise, low
        self._device = device
        # Looking for tied weights would cost a walk over the layers in every call
        self._tied = has_tied_weights(module)
        self._parameters: Tensors = dict(module.named_parameters())
        self.buffers: Tensors = dict(module.named_buffers())
        for layer in module.modules():
            if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
                layer.register_forward_hook(_padding_in_stacks)
        if low and device.type == "cuda":
            for layer in module.modules():
                if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                    layer.register_forward_pre_hook(_widened_in_stacks)

    def live(self, x: Tensor) -> Outputs:
        """Return (logits, z) under the live weights, before `full`."""
        out: Outputs = self.module(x) if self.chain is None else self.chain.alone(self._parameters, x)
        return out

    def under(self, module: nn.Module, tensors: Tensors, x: Tensor) -> Outputs:
        """Return (logits, z) of the network, or of a copy of it, under other weights and buffers."""
        if self.chain is not None:
            return self.chain.alone(tensors, x)
        out: Outputs = functional_call(module, tensors, (x,), tie_weights=self._tied)
        return out

    def called(self, tensors: Tensors, x: Tensor, drawn: list[Tensor]) -> Outputs:
        """Return (logits, z) under other weights and buffers, with dropout from given random numbers.

        BatchNorm updates the statistics in `tensors` in place. Its counters are not changed.
        """
        counters = {
            name: buffer.clone() for name, buffer in self.buffers.items() if not buffer.is_floating_point()
        }
        with self.noise.given(drawn), self.cast():
            logits, z = self.under(self.module, {**counters, **tensors}, x)
        return self.full(logits, z)

    def again(self, w: Params, b: Tensors, x: Tensor, drawn: list[Tensor]) -> Outputs:
        """Return (logits, z) of the same batch with the same dropout under other weights.

        BatchNorm's statistics are not changed.
        """
        return self.called({**w.tensors, **{name: buffer.clone() for name, buffer in b.items()}}, x, drawn)

    def entered(self, rested: Tensor, entrance: str, w: Tensors | None = None) -> Outputs:
        """Return (logits, z) computed from the entrance on, with the live weights or with others.

        They are not passed through `full`.
        """
        inputs = rested
        for name in ("head",) if entrance == "head" else (entrance, "head"):
            inputs, layer = rested, self.module.get_submodule(name)
            own = {
                key.removeprefix(f"{name}."): t for key, t in (w or {}).items() if key.startswith(f"{name}.")
            }
            rested = (
                layer(inputs) if w is None else functional_call(layer, own, (inputs,), tie_weights=self._tied)
            )
        return rested, inputs

    def cast(self) -> AbstractContextManager[object]:
        """Return the context in which the network computes in the precision of the run."""
        return torch.autocast(self._device.type, torch.bfloat16) if self.low else nullcontext()

    def full(self, logits: Tensor, z: Tensor) -> Outputs:
        """Return logits and z in float32."""
        return (logits.float(), z.float()) if self.low else (logits, z)


def _padding_in_stacks(layer: nn.Embedding, inputs: tuple[Tensor], out: Tensor) -> Tensor | None:
    """Give the row of the padding no gradient inside vmap, as torch gives it none for one client alone.

    The rule of vmap for an embedding forgets `padding_idx`.
    """
    if layer.padding_idx is None or not is_stacked(out):
        return None
    return torch.where(torch.eq(inputs[0], layer.padding_idx)[..., None], out.detach(), out)


def _widened_in_stacks(layer: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
    """Give BatchNorm float32 inputs inside vmap, whose gradient on CUDA refuses bfloat16 inputs.

    The statistics are float32, and vmap's rule has no mixed gradient. One client alone needs no change.
    """
    return (inputs[0].float(),) if torch._C._functorch.is_functorch_wrapped_tensor(inputs[0]) else None
