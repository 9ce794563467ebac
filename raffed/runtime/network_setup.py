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
from raffed.models.net import Net
from raffed.own.user_code import user_errors
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.initial_weights import begin_from
from raffed.runtime.machine import graphs_enabled, kernels_enabled, uses_onednn
from raffed.runtime.run_method import NetworkRequest

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


def check_table(method: str, rule: ServerRule, network: NetworkRequest, data: FederatedData) -> None:
    """Refuse a run whose server would answer its clients from a table that does not fit into the memory.

    Args:
        method: Name of the run's method.
        rule: The server's rule.
        network: The network that the run asks for.
        data: The clients and their samples.

    Raises:
        UsageError: It does not, or the server's rule cannot answer so many clients.
    """
    if type(rule).table_size is ServerRule.table_size:
        return
    net = make_network(network, data)
    spec = make_spec(data, net.feature_dim, net.norm_names)
    with user_errors():
        numbers = rule.table_size(net.initial.w, spec)
    clients = f"the table from which {method} answers {spec.everyone:,} clients"
    allow(4.0 * numbers, f"{clients}, of {numbers:,} numbers,")


def make_network(network: NetworkRequest, data: FederatedData, device: torch.device | str = "cpu") -> Network:
    """Return the run's network with its initial weights, which are the same in every process.

    Args:
        network: The network that the run asks for.
        data: The clients and their samples.
        device: Where it computes.
    """
    module, numerics = _built(network, data), network.numerics
    begin_from(module, network.initial, network.model.init)
    return Network(
        module,
        device,
        numerics.precision,
        onednn=uses_onednn(),
        kernels=kernels_enabled() and module.rewritable,
        convolutions=numerics.convolutions == "compiled",
        constants=module.constants,
        recorder=recorder_for(module, torch.device(device)),
    )


def recorder_for(module: Net, device: torch.device) -> StepRecorder | None:
    """Return what records the steps of training on a GPU, or None.

    Layers of other packages may do something else in every step, so they are not recorded.
    """
    known = {type(layer).__module__.partition(".")[0] for layer in module.modules()} <= PURE
    return GraphRecorder(device) if known and device.type == "cuda" and graphs_enabled() else None


def has_normalisation(network: NetworkRequest, data: FederatedData) -> bool:
    """Return whether the run's network has a layer that normalises what it gets."""
    return any(isinstance(layer, _NORMALISING) for layer in _built(network, data).modules())


def _built(network: NetworkRequest, data: FederatedData) -> Net:
    value, classes = seeds.seed(network.seed, "weights"), data.dataset.num_classes
    return network.build(data.input_shape, classes, data.input_dtype, seed=value)


def features_of(net: Network, state: State, x: Tensor, y: Tensor) -> Tensor:
    """Return features z [n, D] of samples x [n, ...] in evaluation mode, on the CPU."""
    return torch.cat([z.cpu() for _, z, _ in net.chunks(state, x, y, EVAL_CHUNK)])
