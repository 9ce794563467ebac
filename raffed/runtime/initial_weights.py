"""The weights from which a run starts (`--init`): the file, and its way into a network."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from raffed.budget import file_bytes
from raffed.config.sections import Model
from raffed.core.params import State
from raffed.errors import UsageError
from raffed.models.net import Net
from raffed.models.own.wrapping import OwnNet

# A network's weights by the user's own names: into a network, and as a table of tensors.


COUNTERS = "num_batches_tracked"  # BatchNorm's counters, which old files lack and nothing depends on
SHOWN = 3  # names that a message lists


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
    tensors, rename = net.state_dict(), net.user_name if isinstance(net, OwnNet) else str
    names = {rename(name): name for name in tensors}  # the user's name → the network's
    missing = [name for name in names if name not in weights and not name.endswith(COUNTERS)]
    unknown = [name for name in weights if name not in names]
    other = [
        f"{name} {_shape(weights[name])} for {_shape(tensors[names[name]])}"
        for name in names
        if name in weights and weights[name].shape != tensors[names[name]].shape
    ]
    said = [
        f"{title} {', '.join(wrong[:SHOWN])}{f' and {len(wrong) - SHOWN} more' if len(wrong) > SHOWN else ''}"
        for title, wrong in (("missing", missing), ("unexpected", unknown), ("other shapes", other))
        if wrong
    ]
    if said:
        raise UsageError(f"{source} does not fit the network: {'; '.join(said)}")
    with torch.no_grad():
        for user_name, name in names.items():
            if user_name in weights:
                tensors[name].copy_(weights[user_name])


def put_state(net: Net, state: State) -> None:
    """Copy a model of a run into a network. Buffers that the model does not have stay as they are."""
    tensors = net.state_dict()
    with torch.no_grad():
        for part in (state.w, state.b):
            for name, value in part.tensors.items():
                tensors[name].copy_(value)


def _shape(value: Tensor) -> str:
    return "x".join(map(str, value.shape)) or "a number"


Arrays = Mapping[str, NDArray[np.generic]]


def read_initial(model: Model) -> Arrays | None:
    """Return the weights from which a run starts, by the user's own names; None without `model.init`.

    Args:
        model: The section of the configuration, with the hash that the file must have.

    Raises:
        UsageError: The file is not there, has another hash, or is not a table of tensors. Nothing in it is
            executed.
    """
    if not model.init:
        return None
    path = Path(model.init)
    content = file_bytes("model.init", model.init, "put the file back")
    actual = hashlib.sha256(content).hexdigest()
    if actual != model.init_sha256:
        raise UsageError(
            f"{path} has the SHA-256 {actual[:12]}, and the run starts from {model.init_sha256[:12]}; put "
            f"that file back"
        )
    return {name: tensor.numpy() for name, tensor in _tensors(path).items()}


# What a file raises that is not what its name says
UNREADABLE = (
    *(OSError, RuntimeError, ValueError, EOFError, KeyError),
    *(pickle.UnpicklingError, SafetensorError),
)


def begin_from(net: Net, initial: Arrays, source: str, framed: bool) -> None:
    """Copy the weights of `read_initial` into a network.

    Args:
        net: The network.
        initial: The weights.
        source: Where they come from, for messages.
        framed: Whether the rows of the head must have the lengths and angles that they have. Then the head of
            `initial` is left out if its rows have others.

    Raises:
        UsageError: The names or shapes do not fit.
    """
    head = net.head.state_dict()
    frame = {name: value.clone() for name, value in head.items()}
    start_from(net, {name: torch.from_numpy(np.array(value)) for name, value in initial.items()}, source)
    rows, before = head["weight"], frame["weight"]
    if framed and not torch.allclose(rows @ rows.T, before @ before.T, atol=1e-4):
        net.head.load_state_dict(frame)


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    advice = "wanted a state_dict, as torch.save(model.state_dict(), FILE) or `raffed export` writes it"
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors: dict[str, torch.Tensor] = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise UsageError(f"{path} cannot be read as weights ({type(error).__name__}); {advice}") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in tensors.items()
    ):
        raise UsageError(f"{path} is not a table of tensors; {advice}")
    return {name: _plain(value, f"{path}: {name}") for name, value in tensors.items()}


def _plain(value: torch.Tensor, where: str) -> torch.Tensor:
    """Return a tensor of a file as NumPy can hold it. Numbers in bfloat16 are the same in float32.

    Raises:
        UsageError: It is sparse, quantised or complex, or has NaN in it.
    """
    if value.layout != torch.strided or value.is_quantized or value.is_complex():
        raise UsageError(f"{where} is not a plain table of real numbers; save it as float32")
    if value.isnan().any():
        raise UsageError(f"{where} has NaN in it, so no run can start from it; give another file")
    value = value.float() if value.dtype == torch.bfloat16 else value
    return value.detach().contiguous()
