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

from raffed.core.context import ClientData, Forward, LogitsLoss
from raffed.core.kernels import has_tied_weights, optimise
from raffed.core.kernels.linear import LinearChain
from raffed.core.losses import is_stacked
from raffed.core.params import Layout, Params, State
from raffed.core.parts import Part, in_part
from raffed.core.training.recorded_steps import KeptPhases, StepRecorder
from raffed.core.training.seeded_dropout import Noise, draw, replace_dropout
from raffed.errors import UsageError

# A network in training mode as a function: of the live weights, or of other weights that are arguments.


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
            weights = {
                key.removeprefix(f"{name}."): t for key, t in (w or {}).items() if key.startswith(f"{name}.")
            }
            rested = (
                layer(inputs)
                if w is None
                else functional_call(layer, weights, (inputs,), tie_weights=self._tied)
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
        onednn: Whether large linear layers are computed by oneDNN (core/kernels/linear.py).
        kernels: Whether layers are replaced by faster ones (`kernels.optimise`). If not, `onednn` and
            `convolutions` have no effect.
        convolutions: Whether convolutions are computed by raffed's own kernel (core/kernels/convolution.py).
        constants: Names of floating-point buffers that are no part of the model: neither trained, nor sent,
            nor averaged.
        recorder: What records steps that repeat (recorded_steps.py), or None.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        *,
        onednn: bool = False,
        kernels: bool = True,
        convolutions: bool = False,
        constants: Collection[str] = (),
        recorder: StepRecorder | None = None,
    ) -> None:
        self.recorder, self.kept_phases = recorder, KeptPhases()
        self.device = torch.device(device)
        self.noise = Noise()
        self.has_dropout = replace_dropout(module, self.noise)
        chain = optimise(module, onednn=onednn, convolutions=convolutions) if kernels else None
        self.module = module.to(self.device).train()
        self._frozen = copy.deepcopy(module).eval().requires_grad_(False)
        self._params = dict(self.module.named_parameters())
        named = self.module.named_buffers()
        buffers = {n: b for n, b in named if b.is_floating_point() and n not in constants}
        self.initial = State(Params(_detached(self._params)).clone(), Params(buffers).clone())
        self._w = self.initial.w.flat.clone()
        # Also for a network without buffers, whose flat buffer is empty
        self._b = self.initial.b.flat.to(self.device, copy=True)
        for name, view in self.w_layout.views(self._w).items():
            self._params[name].data = view
        for name, view in self.b_layout.views(self._b).items():
            owner, _, leaf = name.rpartition(".")
            self.module.get_submodule(owner)._buffers[leaf] = view
        self._moves = True  # whether the body is in train mode
        self.norms = [m for m in self.module.modules() if isinstance(m, _BATCH_NORM)]
        self.norm_names = _names_of(self.norms, self._params)
        # On an H200 this layout costs time in fp32: 12 % for ResNet-18, 70 % for stacks of 20 LeNets
        convolves = any(isinstance(m, nn.Conv2d) for m in self.module.modules())
        self._channels_last = convolves and self.device.type != "cuda"
        self._live = Params(self._params)
        self.functional = FunctionalNetwork(
            module, chain, self.noise, low=precision == "bf16", device=self.device
        )
        self._noise_shapes: dict[tuple[tuple[int, ...], bool], list[tuple[int, ...]]] = {}

    @property
    def w_layout(self) -> Layout:
        return self.initial.w.layout

    @property
    def b_layout(self) -> Layout:
        return self.initial.b.layout

    @property
    def feature_dim(self) -> int:
        head = self.module.get_submodule("head")
        assert isinstance(head, nn.Linear)
        return head.in_features

    @property
    def normalises(self) -> bool:
        """Whether the network has BatchNorm, which cannot normalise a batch of one sample."""
        return bool(self.norms)

    @property
    def can_be_stacked(self) -> bool:
        """Whether `vmap` can compute all layers. It cannot compute torch's recurrent ones."""
        return self.recurrent is None

    @property
    def recurrent(self) -> nn.RNNBase | None:
        """The first recurrent layer of torch, or None."""
        return next((m for m in self.module.modules() if isinstance(m, nn.RNNBase)), None)

    def arranged(self, x: Tensor) -> Tensor:
        """Return x [n, ...] in the memory format that is fastest for this network.

        It is channels last for images and convolutions, except on a GPU.
        """
        if not self._channels_last or x.dim() != 4 or x.stride(1) == 1:
            return x
        # `contiguous` would not change images with one channel
        return x.to(memory_format=torch.channels_last)

    def load(self, state: State) -> None:
        """Copy a model into the scratch copy."""
        self._w.copy_(state.w.arranged(self.w_layout.names).flat)
        self._b.copy_(state.b.arranged(self.b_layout.names).flat)

    def snapshot(self) -> State:
        """Return an own copy of the model in the scratch copy."""
        return State(Params.from_flat(self.w_layout, self._w.clone()), self.statistics())

    def statistics(self) -> Params:
        """Return an own copy of BatchNorm's statistics in the scratch copy."""
        return Params.from_flat(self.b_layout, self._b.clone())

    def train(self) -> None:
        """Put all layers in train mode."""
        self.module.train()
        self._moves = True

    def leaves(self, part: Part) -> dict[str, Tensor]:
        """Return the live parameters of a part of the network.

        For layers outside the part, BatchNorm's statistics are frozen and dropout is switched off.
        """
        chosen: dict[str, Tensor] = {
            n: p for n, p in self._params.items() if in_part(n, part, self.norm_names)
        }
        moves = part in ("all", "body", "base", "norm")
        if self._moves != moves:
            self.module.get_submodule("body").train(moves)
            self._moves = moves
        return chosen

    def check_trained(self, weights: Collection[Tensor], part: Part) -> None:
        """Refuse a training phase that has no weights to train.

        Raises:
            UsageError: There are none. The message names the part.
        """
        if not weights:
            lacks = " (it has no BatchNorm)" if part == "norm" else ""
            raise UsageError(
                f"the method trains the part {part!r} of the network, which has no weights{lacks}; use "
                "another network (--model), or another part"
            )

    def entrance(self, part: Part) -> str:
        """Return where training of a part can enter the network, because the layers below it are not trained.

        The result is "" if training has to start at the inputs.
        """
        if part not in ("head", "top"):
            return ""
        layers = [name for name, _ in self.module.get_submodule("body").named_children()]
        return "body.projection" if part == "top" and layers == ["encoder", "projection"] else "head"

    def rested(self, start: State, x: Tensor, entrance: str, chunk: int) -> Tensor:
        """Apply the untrained layers below an entrance to x [n, ...], once for a training phase."""
        self.load(start)
        below = self.module.get_submodule("body" if entrance == "head" else "body.encoder")
        with torch.no_grad(), self.functional.cast():
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
        with self.functional.cast():
            out = self.functional.live(x) if rested is None else self.functional.entered(rested, entrance)
        logits, z = self.functional.full(*out)
        drawn = list(self.noise.used)
        again = self.functional.again
        return Forward(
            x, y, z, logits, self._live, through=lambda w: again(w, self.functional.buffers, x, drawn)
        )

    @property
    def written_out(self) -> bool:
        """Whether the cross-entropy's gradients can be computed without a graph (`gradients`)."""
        return self.functional.chain is not None and not self.functional.low

    def gradients(self, x: Tensor, y: Tensor, names: Collection[str]) -> tuple[Tensor, list[Tensor]]:
        """Return the cross-entropy of a batch under the live weights, and its gradients for `names`.

        They equal autograd's bit for bit.
        """
        assert self.functional.chain is not None
        return self.functional.chain.gradients(self._params, x, y, names)

    def noise_shapes(self, x: Tensor) -> list[tuple[int, ...]]:
        """Return the shape of the random numbers of each dropout layer for x [B, ...], in order of use."""
        if not self.has_dropout:
            return []
        trail = tuple(x.shape[1:])
        # Dropout is off in a body that is not trained
        key = (
            trail,
            self.module.get_submodule("body").training,
        )
        if key not in self._noise_shapes:
            b = {name: tensor.clone() for name, tensor in self.functional.buffers.items()}
            with torch.no_grad(), self.noise.recorded() as shapes:
                functional_call(
                    self.module, b, (x[:1].expand(2, *trail),)
                )  # two samples, because BatchNorm refuses one
            self._noise_shapes[key] = [shape[1:] for shape in shapes]
        return [(len(x), *shape) for shape in self._noise_shapes[key]]

    def dropout_draws(self, x: Tensor) -> list[Tensor]:
        """Return the numbers that dropout would draw in a pass over x [B, ...], from the same generator."""
        shapes = self.noise_shapes(x)
        if not shapes:
            return []
        assert self.noise.generator is not None
        return draw(shapes, self.noise.generator)

    def apply(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits, z) of a model in evaluation mode, without gradient. No model is changed."""
        with torch.no_grad():
            return self._frozen_at(state, x)

    def differentiable(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits, z) in evaluation mode with gradient, for servers that train on their own data.

        Batches are arranged here, because a rule that takes some images of a set loses their memory format.
        """
        return self._frozen_at(state, self.arranged(x))

    def _frozen_at(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.functional.under(self._frozen, {**state.w.tensors, **state.b.tensors}, x)

    def chunks(
        self, state: State, x: Tensor, y: Tensor, size: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (logits, z, y) over a whole set in chunks of fixed size, in evaluation mode."""
        for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
            logits, z = self.apply(state, part_x)
            yield logits, z, part_y


def _names_of(modules: list[_BATCH_NORM], params: dict[str, nn.Parameter]) -> tuple[str, ...]:
    """Return the names of the network's parameters that belong to these layers themselves."""
    ids = {id(p) for module in modules for p in module.parameters(recurse=False)}
    return tuple(name for name, p in params.items() if id(p) in ids)


def _detached(tensors: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}


# BatchNorm statistics that are recomputed from a client's own data.


def reestimated(net: Network, state: State, x: Tensor, batch: int) -> State:
    """Return the model with BatchNorm statistics that are recomputed by one pass over x.

    Source: docs/papers/map.md §3.3. Without BatchNorm the model itself is returned. Batch j has momentum B_j
    / Σ_{i≤j} B_i. So the running mean becomes the exact mean over x, and the running variance becomes the
    size-weighted mean of the batch variances. The batches are fixed, in data order and without augmentation,
    so no random numbers are needed. The authors' code goes through its training loader instead, which
    shuffles and augments.

    Args:
        net: The network. The model in its scratch copy is overwritten.
        state: The model.
        x: Prepared inputs [n, ...].
        batch: Samples in a batch.
    """
    if not net.norms:
        return state
    # Reset first, because 0 · NaN would survive a first momentum of 1
    net.load(State(state.w, state.b.zeros()))
    usual = [norm.momentum for norm in net.norms]
    net.module.eval()  # only BatchNorm is in train mode; dropout would draw random numbers
    for norm in net.norms:
        norm.train()
    seen = 0
    with torch.no_grad():
        for part in torch.split(x, batch):
            seen += len(part)
            for norm in net.norms:
                norm.momentum = len(part) / seen
            net.module(part)
    for norm, momentum in zip(net.norms, usual, strict=True):
        norm.momentum = momentum
    net.train()
    return State(state.w, net.statistics())


# Gradients of a model on a client's samples, batch by batch, outside of training.


def batch_gradients(
    net: Network, state: State, data: ClientData, batch: int, loss: LogitsLoss
) -> Iterator[Params]:
    """Yield the gradient of the mean loss of each batch, with respect to all parameters.

    The model is in evaluation mode. Batches are in data order and without augmentation, so no random numbers
    are needed.

    Args:
        net: The network. The model in its scratch copy is not used.
        state: The model.
        data: The client's training samples.
        batch: Samples in a batch.
        loss: The loss of a batch.
    """
    for x, y in zip(torch.split(data.x, batch), torch.split(data.y, batch), strict=True):
        with torch.enable_grad():
            live = {name: t.detach().clone().requires_grad_() for name, t in state.w.tensors.items()}
            logits, _ = net.differentiable(State(Params(live), state.b), x)
            grads = torch.autograd.grad(loss(logits, y), list(live.values()), materialize_grads=True)
        yield Params(dict(zip(live, grads, strict=True)))
