"""torchvision's weights for ImageNet, from the file in its cache. Nothing is downloaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
import torchvision
from torch import nn

from raffed.errors import UsageError

FOLDER = "checkpoints"  # below torch.hub's folder, where torchvision keeps its files


def weights_file(name: str) -> Path:
    """Return where torchvision keeps the default weights of a network.

    Raises:
        UsageError: torchvision has no weights for it.
    """
    try:
        known = torchvision.models.get_model_weights(name).DEFAULT
    except (AttributeError, ValueError) as error:
        raise UsageError(
            f"torchvision:{name}: torchvision has no weights for it; leave pretrained out"
        ) from error
    return Path(torch.hub.get_dir()) / FOLDER / str(known.url).rpartition("/")[2]


def load_pretrained(module: nn.Module, name: str) -> None:
    """Copy torchvision's weights for ImageNet into a network, except those of the head.

    The file's name ends with the beginning of its SHA-256, which is compared.

    Args:
        module: torchvision's network of this name, with any number of classes.
        name: Name of the network.

    Raises:
        UsageError: The file is not there, is damaged, or does not belong to this form of the network.
    """
    path = weights_file(name)
    if not path.is_file():
        raise UsageError(
            f"torchvision:{name}: pretrained = true needs the file {path.name} in {path.parent}, and it is "
            "not there; put it there, or leave pretrained out"
        )
    wanted, found = path.stem.rpartition("-")[2], hashlib.sha256(path.read_bytes()).hexdigest()
    if not found.startswith(wanted):
        raise UsageError(
            f"{path} has the SHA-256 {found[:12]}, and its name says {wanted}; put the file back"
        )
    stored: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    own = module.state_dict()
    fitting = {key: value for key, value in stored.items() if key in own and own[key].shape == value.shape}
    left = sorted(own.keys() - fitting.keys())
    if len({key.rpartition(".")[0] for key in left}) > 1:  # more than the head
        raise UsageError(
            f"torchvision:{name}: {path.name} has no weights for {left[0]}; leave out the arguments that "
            "change the network"
        )
    module.load_state_dict(fitting, strict=False)
