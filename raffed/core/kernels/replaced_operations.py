"""Operations of torch that raffed computes itself on the CPU, for the rest of a process.

What torch computed before stays reachable, for the inputs that a replacement leaves to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Replacing(Protocol):
    """What replaces operations of torch, for as long as it lives."""

    def impl(self, name: str, new: Callable[..., Tensor], key: str, *, with_keyset: bool) -> None: ...


_begin: Callable[[str, str], Replacing] = torch.library.Library


class Replacements:
    """Replaces operations on the CPU, for as long as it lives."""

    def __init__(self) -> None:
        self._library = _begin("aten", "IMPL")

    def add(self, name: str, new: Callable[..., Tensor]) -> None:
        """Let an operation be a function of the dispatcher's keys and of the operation's arguments."""
        self._library.impl(name, new, "CPU", with_keyset=True)


def usual(name: str) -> Callable[..., Tensor]:
    """Return what torch computes now, as a function of the same arguments as its replacement."""
    kernel: Callable[..., Tensor] = torch.library.get_kernel(f"aten::{name}", "CPU").call_boxed
    return kernel


__all__ = ["Replacements", "usual"]
