"""The model as a function of its weights.

There is one scratch copy for training, and one frozen copy for everything else.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from raffed.core.context import Forward
from raffed.core.kernels.channel_padding import fill_channels
from raffed.core.kernels.linear_chain import chain_of
from raffed.core.kernels.maxpool import choose_pools
from raffed.core.kernels.onednn_linear import choose_products
from raffed.core.kernels.relu_after_pool import pool_first
from raffed.core.params import Layout, Params, State
from raffed.core.parts import Part, in_part
from raffed.core.training.seeded_dropout import Noise, replace_dropout

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


class Network:
    """A network whose parameters are views of one flat buffer.

    So loading a client's weights is one copy.

    `module` returns (logits [B, C], z [B, D]) with z = body(x) and logits = head(z). The body may also be a
    Sequential of an encoder and a projection. The parameters are named `body.*` and `head.*`.

    Args:
        module: The network. It becomes the scratch copy, so nothing else may use it afterwards.
        device: Where it trains.
        precision: "fp32", or "bf16" for training passes under autocast. Weights, logits, features and
            gradients stay float32, so that losses, memories and sums are not affected. Evaluation is always
            in float32.
        onednn: Whether large linear layers are computed by oneDNN (core/kernels/onednn_linear.py).
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        *,
        onednn: bool = False,
    ) -> None:
        self.device = torch.device(device)
        self._low = precision == "bf16"
        self.noise = Noise()
        self.has_dropout = replace_dropout(module, self.noise)
        pool_first(module)
        fill_channels(module)
        choose_pools(module)
        if onednn:
            choose_products(module)
        self._module = module.to(self.device).train()
        self._frozen = copy.deepcopy(module).eval().requires_grad_(False)
        self._params = dict(self._module.named_parameters())
        everywhere = sum(1 for _ in self._module.named_parameters(remove_duplicate=False))
        # Looking for tied weights would cost a walk over the layers in every call
        self._tied = everywhere > len(self._params)
        self._chain = None if self._tied else chain_of(module)
        buffers = {n: b for n, b in self._module.named_buffers() if b.is_floating_point()}
        self.initial = State(Params(_detached(self._params)).clone(), Params(buffers).clone())
        self._w = self.initial.w.flat.clone()
        # Also for a network without buffers, whose flat buffer is empty
        self._b = self.initial.b.flat.to(self.device, copy=True)
        for name, view in self.w_layout.views(self._w).items():
            self._params[name].data = view
        for name, view in self.b_layout.views(self._b).items():
            owner, _, leaf = name.rpartition(".")
            self._module.get_submodule(owner)._buffers[leaf] = view
        self._moves = True  # whether the body is in train mode
        self._norms = [m for m in self._module.modules() if isinstance(m, _BATCH_NORM)]
        self._channels_last = any(isinstance(m, nn.Conv2d) for m in self._module.modules())
        self._live = Params(self._params)
        self._buffers = dict(self._module.named_buffers())
        self._noise_shapes: dict[tuple[tuple[int, ...], bool], list[tuple[int, ...]]] = {}

    @property
    def w_layout(self) -> Layout:
        return self.initial.w.layout

    @property
    def b_layout(self) -> Layout:
        return self.initial.b.layout

    @property
    def feature_dim(self) -> int:
        head = self._module.get_submodule("head")
        assert isinstance(head, nn.Linear)
        return head.in_features

    @property
    def normalises(self) -> bool:
        """Whether the network has BatchNorm, which cannot normalise a batch of one sample."""
        return bool(self._norms)

    def arranged(self, x: Tensor) -> Tensor:
        """Return x [n, ...] in the memory format that is fastest for this network.

        It is channels last for images and convolutions.
        """
        if not self._channels_last or x.dim() != 4 or x.stride(1) == 1:
            return x
        # `contiguous` would not change images with one channel
        return x.to(memory_format=torch.channels_last)

    def load(self, state: State) -> None:
        """Copy a model into the scratch copy."""
        self._w.copy_(state.w.flat)
        self._b.copy_(state.b.flat)

    def snapshot(self) -> State:
        """Return an own copy of the model in the scratch copy."""
        return State(
            Params.from_flat(self.w_layout, self._w.clone()), Params.from_flat(self.b_layout, self._b.clone())
        )

    def leaves(self, part: Part) -> dict[str, Tensor]:
        """Return the live parameters of a part of the network.

        For layers outside the part, BatchNorm's statistics are frozen and dropout is switched off.
        """
        chosen: dict[str, Tensor] = {n: p for n, p in self._params.items() if in_part(n, part)}
        moves = part in ("all", "body", "base")
        if self._moves != moves:
            self._module.get_submodule("body").train(moves)
            self._moves = moves
        return chosen

    def entrance(self, part: Part) -> str:
        """Return where training of a part can enter the network, because the layers below it are not trained.

        The result is "" if training has to start at the images.
        """
        if part not in ("head", "top"):
            return ""
        layers = [name for name, _ in self._module.get_submodule("body").named_children()]
        return "body.projection" if part == "top" and layers == ["encoder", "projection"] else "head"

    def rested(self, start: State, x: Tensor, entrance: str, chunk: int) -> Tensor:
        """Apply the untrained layers below an entrance to x [n, ...], once for a training phase."""
        self.load(start)
        below = self._module.get_submodule("body" if entrance == "head" else "body.encoder")
        with torch.no_grad(), self._cast():
            return torch.cat([below(self.arranged(part)) for part in torch.split(x, chunk)])

    def forward(self, x: Tensor, y: Tensor, rested: Tensor | None = None, entrance: str = "") -> Forward:
        """Make a training pass of the scratch copy, with gradients. Dropout draws from `noise`'s generator.

        Args:
            x: Inputs [B, ...].
            y: Labels [B].
            rested: What the layers below `entrance` have made of x, or None.
            entrance: Where the pass enters the network.
        """
        x = self.arranged(x)
        self.noise.used.clear()
        with self._cast():
            logits, z = self._passed(x) if rested is None else self._entered(rested, entrance)
        drawn = list(self.noise.used)
        return Forward(
            x,
            y,
            *self._full(z, logits),
            self._live,
            through=lambda w: self._through(w, self._buffers, x, drawn),
        )

    def _passed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out: tuple[Tensor, Tensor] = (
            self._module(x) if self._chain is None else self._chain.alone(self._params, x)
        )
        return out

    def _through(
        self, w: Params, b: dict[str, Tensor], x: Tensor, drawn: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return (logits, z) of the same batch with the same dropout under other weights.

        BatchNorm's statistics are not changed.
        """
        return self._called({**w.tensors, **{name: buffer.clone() for name, buffer in b.items()}}, x, drawn)

    def _entered(
        self, rested: Tensor, entrance: str, w: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return (logits, z) computed from the entrance on, with the live weights or with others."""
        inputs = rested
        for name in ("head",) if entrance == "head" else (entrance, "head"):
            inputs, layer = rested, self._module.get_submodule(name)
            own = {
                key.removeprefix(f"{name}."): t for key, t in (w or {}).items() if key.startswith(f"{name}.")
            }
            rested = (
                layer(inputs) if w is None else functional_call(layer, own, (inputs,), tie_weights=self._tied)
            )
        return rested, inputs

    def _called(self, tensors: dict[str, Tensor], x: Tensor, drawn: list[Tensor]) -> tuple[Tensor, Tensor]:
        counters = {
            name: buffer.clone() for name, buffer in self._buffers.items() if not buffer.is_floating_point()
        }
        with self.noise.given(drawn), self._cast():
            logits, z = self._under(self._module, {**counters, **tensors}, x)
        z, logits = self._full(z, logits)
        return logits, z

    def _under(self, module: nn.Module, tensors: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits, z) of a module under other weights and buffers."""
        if self._chain is not None:
            return self._chain.alone(tensors, x)
        out: tuple[Tensor, Tensor] = functional_call(module, tensors, (x,), tie_weights=self._tied)
        return out

    def of_all(self, w: dict[str, Tensor], x: Tensor) -> tuple[Tensor, ...]:
        """Return (logits [g, B, C], z [g, B, D]) of g clients' batches x [g, B, ...], computed outside vmap.

        The result is () if the network is not a chain of linear layers.
        """
        if self._chain is None:
            return ()
        with self._cast():
            logits, z = self._chain.stacked(w, x)
        z, logits = self._full(z, logits)
        return logits, z

    @property
    def written_out(self) -> bool:
        """Whether the cross-entropy's gradients can be computed without a graph (`gradients`)."""
        return self._chain is not None and not self._low

    def gradients(self, x: Tensor, y: Tensor, names: Collection[str]) -> tuple[Tensor, list[Tensor]]:
        """Return the cross-entropy of a batch under the live weights, and its gradients for `names`.

        They equal autograd's bit for bit.
        """
        assert self._chain is not None
        return self._chain.gradients(self._params, x, y, names)

    def gradients_of_all(
        self, w: dict[str, Tensor], x: Tensor, y: Tensor, names: Collection[str]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return cross-entropies [g] of g clients, and gradients for their weights [g, ...].

        The batches are x [g, B, ...] and y [g, B].
        """
        assert self._chain is not None
        return self._chain.stacked_gradients(w, x, y, names)

    def forward_with(
        self,
        w: dict[str, Tensor],
        b: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        drawn: list[Tensor],
        rested: Tensor | None = None,
        entrance: str = "",
        made: tuple[Tensor, ...] = (),
    ) -> Forward:
        """Make a training pass with weights and buffers as arguments, for vmap.

        BatchNorm updates `b` in place.

        Args:
            w: Weights by name.
            b: Buffers by name.
            x: Inputs [B, ...].
            y: Labels [B].
            drawn: Uniform random numbers of the dropout layers, in the order of `noise_shapes`.
            rested: What the layers below `entrance` have made of x, or None.
            entrance: Where the pass enters the network.
            made: (logits, z) from `of_all`, or () if they have to be computed.
        """
        if made:
            logits, z = made
        elif rested is None:
            logits, z = self._called({**w, **b}, x, drawn)
        else:
            with self._cast():
                logits, z = self._entered(rested, entrance, w)
            z, logits = self._full(z, logits)
        return Forward(x, y, z, logits, Params(w), through=lambda other: self._through(other, b, x, drawn))

    def _cast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self._low else nullcontext()

    def _full(self, z: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        return (z.float(), logits.float()) if self._low else (z, logits)

    def noise_shapes(self, x: Tensor) -> list[tuple[int, ...]]:
        """Return the shape of the random numbers of each dropout layer for x [B, ...], in order of use."""
        if not self.has_dropout:
            return []
        trail = tuple(x.shape[1:])
        # Dropout is off in a body that is not trained
        key = (
            trail,
            self._module.get_submodule("body").training,
        )
        if key not in self._noise_shapes:
            b = {name: tensor.clone() for name, tensor in self._buffers.items()}
            with torch.no_grad(), self.noise.recorded() as shapes:
                functional_call(
                    self._module, b, (x[:1].expand(2, *trail),)
                )  # two samples, because BatchNorm refuses one
            self._noise_shapes[key] = [shape[1:] for shape in shapes]
        return [(len(x), *shape) for shape in self._noise_shapes[key]]

    def apply(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits, z) of a model in evaluation mode, without gradient. No model is changed."""
        with torch.no_grad():
            return self.differentiable(state, x)

    def differentiable(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits, z) in evaluation mode with gradient, for servers that train on their own data."""
        return self._under(self._frozen, {**state.w.tensors, **state.b.tensors}, x)

    def chunks(
        self, state: State, x: Tensor, y: Tensor, size: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (logits, z, y) over a whole set in chunks of fixed size, in evaluation mode."""
        for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
            logits, z = self.apply(state, part_x)
            yield logits, z, part_y

    def reestimate(self, state: State, x: Tensor, batch: int) -> State:
        """Return the model with BatchNorm statistics that are recomputed by one pass over x.

        Source: docs/papers/map.md §3.3. Without BatchNorm the model itself is returned. Batch j has momentum
        B_j / Σ_{i≤j} B_i. So the running mean becomes the exact mean over x, and the running variance becomes
        the size-weighted mean of the batch variances. The batches are fixed, in data order and without
        augmentation, so no random numbers are needed. The authors' code goes through its training loader
        instead, which shuffles and augments.

        Args:
            state: The model.
            x: Prepared inputs [n, ...].
            batch: Samples in a batch.
        """
        if not self._norms:
            return state
        self.load(
            State(state.w, state.b.zeros())
        )  # reset first, because 0 · NaN would survive a first momentum of 1
        usual = [norm.momentum for norm in self._norms]
        self._module.eval()  # only BatchNorm is in train mode; dropout would draw random numbers
        for norm in self._norms:
            norm.train()
        seen = 0
        with torch.no_grad():
            for part in torch.split(x, batch):
                seen += len(part)
                for norm in self._norms:
                    norm.momentum = len(part) / seen
                self._module(part)
        for norm, momentum in zip(self._norms, usual, strict=True):
            norm.momentum = momentum
        self._module.train()
        self._moves = True
        return State(state.w, self.snapshot().b)


def _detached(tensors: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
