"""The model as a function of its weights: one scratch copy to train in, one frozen copy for everything else."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call

from raffed.core.context import Forward
from raffed.core.method import Part, in_part
from raffed.core.params import Layout, Params, State

_BATCH_NORM = nn.modules.batchnorm._BatchNorm
_DROPOUT = nn.modules.dropout._DropoutNd


class Network:
    """A module whose parameters are views of one flat buffer, so loading a client's weights is one copy.

    `module` returns (logits [B, C], z [B, D]) and names its parameters `body.*` and `head.*`. The module given becomes
    the scratch copy; nothing else may hold on to it.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._module = module.to(self.device).train()
        self._frozen = copy.deepcopy(module).eval().requires_grad_(False)
        self._params = dict(self._module.named_parameters())
        buffers = {n: b for n, b in self._module.named_buffers() if b.is_floating_point()}
        self.initial = State(Params(_detached(self._params)).clone(), Params(buffers).clone())
        self._w = self.initial.w.flat.clone()
        self._b = self.initial.b.flat.clone()
        for name, view in self.w_layout.views(self._w).items():
            self._params[name].data = view
        for name, view in self.b_layout.views(self._b).items():
            owner, _, leaf = name.rpartition(".")
            self._module.get_submodule(owner)._buffers[leaf] = view
        self._norms = [m for m in self._module.modules() if isinstance(m, _BATCH_NORM)]
        self.has_dropout = any(isinstance(m, _DROPOUT) and m.p > 0 for m in self._module.modules())
        self._live = Params(self._params)

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

    def load(self, state: State) -> None:
        """Put a state into the scratch copy."""
        self._w.copy_(state.w.flat)
        self._b.copy_(state.b.flat)

    def snapshot(self) -> State:
        """An own copy of what the scratch copy holds."""
        return State(Params.from_flat(self.w_layout, self._w.clone()), Params.from_flat(self.b_layout, self._b.clone()))

    def leaves(self, part: Part) -> dict[str, Tensor]:
        """The live parameters of a part; the others' BatchNorm statistics stand still as well."""
        chosen: dict[str, Tensor] = {n: p for n, p in self._params.items() if in_part(n, part)}
        body_moves = part in ("all", "body")
        if self._norms and self._norms[0].training != body_moves:
            self._module.get_submodule("body").train(body_moves)
        return chosen

    def forward(self, x: Tensor, y: Tensor) -> Forward:
        """A training pass of the scratch copy, with gradients."""
        logits, z = self._module(x)
        return Forward(x, y, z, logits, self._live, through=lambda w: self._through(w, x))

    def _through(self, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        buffers = {name: buffer.clone() for name, buffer in self._module.named_buffers()}
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=self.has_dropout):
            logits, z = functional_call(self._module, {**w.tensors, **buffers}, (x,))
        return logits, z

    def apply(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, z) of any state in evaluation mode, without gradient; leaves every state as it was."""
        with torch.no_grad():
            logits, z = functional_call(self._frozen, {**state.w.tensors, **state.b.tensors}, (x,))
        return logits, z

    def chunks(self, state: State, x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(logits, z, y) over a whole set in chunks of fixed size, evaluation mode."""
        for part_x, part_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
            logits, z = self.apply(state, part_x)
            yield logits, z, part_y

    def reestimate(self, state: State, x: Tensor, batch: int) -> State:
        """BatchNorm statistics of `state` recomputed by one pass over x  (MAP §3.3; the state itself without BatchNorm).

        Per-batch momentum B_j / Σ_{i≤j} B_i: the running mean becomes the exact mean over x, the running variance the
        size-weighted mean of the batch variances. Fixed batches in data order, no augmentation, so no random numbers.
        """
        if not self._norms:
            return state
        self.load(State(state.w, state.b.zeros()))  # the reset: 0 · NaN would survive a first momentum of 1
        usual = [norm.momentum for norm in self._norms]
        self._module.eval()  # but for BatchNorm: dropout would draw random numbers
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
        return State(state.w, self.snapshot().b)


def _detached(tensors: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
