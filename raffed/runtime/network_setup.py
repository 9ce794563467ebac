"""The network of a run with its initial weights, and what ingredients may know about both."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raffed.budget import allow
from raffed.core import seeds
from raffed.core.context import Spec
from raffed.core.params import State
from raffed.core.round import EVAL_CHUNK
from raffed.core.server import ServerRule
from raffed.core.training.network import Network
from raffed.core.training.recorded_steps import GraphRecorder, StepRecorder
from raffed.models import build_for
from raffed.models.net import Net
from raffed.own.user_code import user_errors
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.initial_weights import begin_from
from raffed.runtime.machine import graphs_enabled, kernels_enabled, uses_onednn
from raffed.runtime.run_method import network_args
from raffed.runtime.setup import Setup

PURE = {"raffed", "torch", "torchvision"}  # packages whose layers keep nothing but tensors
_NORMALISING = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def make_spec(data: FederatedData, feature_dim: int, norms: tuple[str, ...] = ()) -> Spec:
    """Return what ingredients may know.

    The expected visits Q·T are computed with integers, because 0.29 · 100 in floats would lose one.
    """
    clients, federation, stages = len(data.trainable), data.federation, data.partition.stages
    visits = max(federation.participants(clients) * federation.rounds // clients, 1)
    rounds_per_cycle = 1 if stages is None else stages.rounds_per_cycle
    samples = sum(data.sizes[client] for client in data.trainable)
    return Spec(
        data.dataset.num_classes,
        feature_dim,
        clients,
        visits,
        federation.rounds,
        samples,
        rounds_per_cycle,
        data.unseen,
        norms,
        data.seed,
    )


def check_table(setup: Setup) -> None:
    """Refuse a run whose server would answer its clients from a table that does not fit into the memory.

    Raises:
        UsageError: It does not, or the server's rule cannot answer so many clients.
    """
    method = setup.method
    if type(method.server).table_size is ServerRule.table_size:
        return
    net = make_network(setup)
    spec = make_spec(setup.data, net.feature_dim, net.norm_names)
    with user_errors():
        numbers = method.server.table_size(net.initial.w, spec)
    clients = f"the table from which {method.name} answers {spec.everyone:,} clients"
    allow(4.0 * numbers, f"{clients}, of {numbers:,} numbers,")


def make_network(setup: Setup, device: torch.device | str = "cpu") -> Network:
    """Return the run's network with its initial weights, which are the same in every process."""
    model, config = setup.config.model, setup.config
    module = _built(setup)
    begin_from(module, setup.initial, model.init)
    return Network(
        module,
        device,
        config.numerics.precision,
        onednn=uses_onednn(),
        kernels=kernels_enabled() and module.rewritable,
        convolutions=config.numerics.convolutions == "compiled",
        constants=module.constants,
        recorder=recorder_for(module, torch.device(device)),
    )


def recorder_for(module: Net, device: torch.device) -> StepRecorder | None:
    """Return what records the steps of training on a GPU, or None.

    Layers of other packages may do something else in every step, so they are not recorded.
    """
    known = {type(layer).__module__.partition(".")[0] for layer in module.modules()} <= PURE
    return GraphRecorder(device) if known and device.type == "cuda" and graphs_enabled() else None


def has_normalisation(setup: Setup) -> bool:
    """Return whether the run's network has a layer that normalises what it gets."""
    return any(isinstance(layer, _NORMALISING) for layer in _built(setup).modules())


def _built(setup: Setup) -> Net:
    model, value = setup.config.model, seeds.seed(setup.config.seed, "weights")
    args = network_args(setup.config, setup.method)
    classes = setup.dataset.num_classes
    return build_for(model.name, args, setup.data.input_shape, classes, value, setup.data.input_dtype)


def features_of(net: Network, state: State, x: Tensor, y: Tensor) -> Tensor:
    """Return features z [n, D] of samples x [n, ...] in evaluation mode, on the CPU."""
    return torch.cat([z.cpu() for _, z, _ in net.chunks(state, x, y, EVAL_CHUNK)])
