"""Move records between devices, and what a field of a record can hold."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from raffed.core.params import Params
from raffed.core.record import Record, fields_of

R = TypeVar("R", bound=Record)
# What a field of a record holds
Value = Tensor | Params | Record | dict[str, Record] | tuple[Record, ...] | float | str | None


def moved(value: R, device: torch.device) -> R:
    """Return a record with its tensors on `device`.

    If that is the CPU, the record itself is returned, because such a record has never left the CPU.
    """
    return value if device.type == "cpu" else _moved(value, device)


def brought_back(value: R) -> R:
    """Return a record with its tensors on the CPU, where the server is."""
    return _moved(value, torch.device("cpu"))


def _moved(value: R, device: torch.device) -> R:
    fields = fields_of(value)
    return value.replace(**{name: _field_moved(one, device) for name, one in fields.items()})


def _field_moved(value: Value, device: torch.device) -> Value:
    if isinstance(value, Tensor | Params):
        return value.to(device)
    if isinstance(value, Record):
        return _moved(value, device)
    if isinstance(value, dict):
        return {name: _moved(one, device) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_moved(one, device) for one in value)
    return value
