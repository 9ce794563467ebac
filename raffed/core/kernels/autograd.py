"""What torch hands to the forward and backward functions of an operation with a gradient of its own."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Saved(Protocol):
    """The context of a `torch.autograd.Function`, as the kernels use it."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class SavedWithSize(Saved, Protocol):
    """The same, with the height and width of the input."""

    size: tuple[int, int]
