"""What the kernels' own operations with a gradient need of torch."""

from __future__ import annotations

import inspect
from typing import Protocol, TypeAlias

from torch import Tensor
from torch.autograd import Function

Argument: TypeAlias = Tensor | int | tuple[int, ...] | None
Dims: TypeAlias = tuple[int | None, ...]  # for each argument inside vmap the axis of clients, or None


class Operation(Function):
    """A `Function` with a `setup_context`, as torch.func's transforms need it, that costs less to call.

    In every call torch looks at the signature of `forward`, which takes longer than a small kernel. Here it
    is made once.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.forward.__dict__["__signature__"] = inspect.signature(cls.forward)

    @classmethod
    def of(cls, *args: Argument) -> Tensor:
        """Compute the operation's result, and record it for the gradient."""
        made: Tensor = cls.apply(*args)
        return made

    @classmethod
    def pair(cls, *args: Argument) -> tuple[Tensor, Tensor]:
        """Do the same for an operation with two results."""
        made: tuple[Tensor, Tensor] = cls.apply(*args)
        return made


class Saved(Protocol):
    """The context of an operation, as the kernels use it."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None: ...

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...


class SavedWithSize(Saved, Protocol):
    """The same, with the height and width of the input."""

    size: tuple[int, int]


class Mapped(Protocol):
    """What vmap says about itself."""

    batch_size: int


def clients_first(t: Tensor, dim: int | None, clients: int) -> Tensor:
    """Return a tensor with the axis of vmap first."""
    return t.expand(clients, *t.shape) if dim is None else t.movedim(dim, 0)
