"""A network's weights by the user's own names: into a network, and as a table of tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from raffed.core.params import State
from raffed.errors import UsageError
from raffed.models.net import Net
from raffed.models.own.wrapping import OwnNet

COUNTERS = "num_batches_tracked"  # BatchNorm's counters, which old files lack and nothing depends on
SHOWN = 3  # names that a message lists


def user_names(net: Net) -> dict[str, str]:
    """Return, for every parameter and buffer that a file holds, the user's name → the network's name."""
    rename = net.user_name if isinstance(net, OwnNet) else str
    return {rename(name): name for name in net.state_dict()}


def plain_module(net: Net) -> nn.Module:
    """Return the user's own module with the network's weights, or the network itself if it is raffed's."""
    return net.user_module() if isinstance(net, OwnNet) else net


def start_from(net: Net, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a network.

    Args:
        net: The network. Frozen parameters and buffers are set too.
        weights: The user's names → tensors, as in the state_dict of the user's own class.
        source: Where the weights come from, for messages.

    Raises:
        UsageError: A name is missing, unknown, or has another shape. The message lists them.
    """
    names, own = user_names(net), net.state_dict()
    missing = [one for one in names if one not in weights and not one.endswith(COUNTERS)]
    unknown = [one for one in weights if one not in names]
    other = [
        f"{one} {_shape(weights[one])} for {_shape(own[names[one]])}"
        for one in names
        if one in weights and weights[one].shape != own[names[one]].shape
    ]
    said = [
        f"{title} {', '.join(found[:SHOWN])}{f' and {len(found) - SHOWN} more' if len(found) > SHOWN else ''}"
        for title, found in (("missing", missing), ("unexpected", unknown), ("other shapes", other))
        if found
    ]
    if said:
        raise UsageError(f"{source} does not fit the network: {'; '.join(said)}")
    with torch.no_grad():
        for one, name in names.items():
            if one in weights:
                own[name].copy_(weights[one])


def put_state(net: Net, state: State) -> None:
    """Copy a model of a run into a network. Buffers that the model does not have stay as they are."""
    own = net.state_dict()
    with torch.no_grad():
        for part in (state.w, state.b):
            for name, value in part.tensors.items():
                own[name].copy_(value)


def _shape(value: Tensor) -> str:
    return "x".join(map(str, value.shape)) or "a number"


__all__ = ["plain_module", "put_state", "start_from", "user_names"]
