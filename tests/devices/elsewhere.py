"""A device whose memory is not the CPU's, without hardware: tensors that say they are `elsewhere:0` and
compute on the CPU.

What a GPU would refuse is refused: an operation over tensors of both sides (but for numbers without
dimensions, and indices), and reading one as a NumPy array. Since the kernels are the CPU's, what is left must
have the CPU's bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._device import _device_constructors
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from raffed.core import seeds
from raffed.core.training import seeded_dropout

NAME = "elsewhere"
_kept: list[Any] = []


class MixedError(RuntimeError):
    """An operation was given tensors of two devices."""


class Elsewhere(Tensor):
    """A tensor on the device; `held` is its content, on the CPU."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=f"{NAME}:0",
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, other: Elsewhere) -> None:
        """Other memory from now on, as for any tensor; nothing but the memory may differ."""
        assert (self.shape, self.stride(), self.dtype) == (other.shape, other.stride(), other.dtype)
        self.held = other.held

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    def tolist(self) -> Any:
        return self.held.tolist()

    def new_tensor(self, values: Any) -> Tensor:
        return Elsewhere(self.held.new_tensor(values))

    def __getitem__(self, index: Any) -> Tensor:
        parts = index if isinstance(index, tuple) else (index,)
        return super().__getitem__(
            tuple(torch.as_tensor(part) if isinstance(part, list) else part for part in parts)
        )

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.held!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("a tensor of a device travels: whoever receives it may have no such device")


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation on what the tensors hold; what it makes is on the device unless it says otherwise."""
    name = func.name().removeprefix("aten::").split(".")[0]
    given: list[Tensor] = []

    def held(tensor: Tensor) -> Tensor:
        given.append(tensor)
        return tensor.held if isinstance(tensor, Elsewhere) else tensor

    plain, named = _mapped((args, kwargs), held)
    _check(name, given, args)
    home = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    if home is not None and home.type == NAME:
        named["device"] = "cpu"
    out = func(*plain, **named)
    if home is not None and home.type == "cpu":
        return out.clone() if name == "_to_copy" else out
    if name == "copy_":
        return args[0]
    # What is changed in place is returned as it was given
    known = {id(x.held): x for x in given if isinstance(x, Elsewhere)}
    return _mapped(out, lambda x: known[id(x)] if id(x) in known else Elsewhere(x))


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """What an operation takes or returns, with every tensor changed. torch's pytree is ten times slower."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)([_mapped(one, change) for one in value])
    if isinstance(value, dict):
        return {name: _mapped(one, change) for name, one in value.items()}
    return value


def _check(name: str, given: list[Tensor], args: Any) -> None:
    """Refuse tensors of both sides. Numbers without dimensions may come from the CPU, and so may indices."""
    if name in ("_to_copy", "copy_"):
        return
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        indices = [x for x in args[1] if isinstance(x, Tensor)]
        if not isinstance(args[0], Elsewhere) and any(isinstance(x, Elsewhere) for x in indices):
            raise MixedError(f"{name}: indices on {NAME} into a tensor on the CPU")
        given = [args[0], *args[2:3]]
    here = any(isinstance(x, Elsewhere) for x in given)
    there = [x for x in given if isinstance(x, Tensor) and not isinstance(x, Elsewhere) and x.dim()]
    if here and there:
        raise MixedError(
            f"{name}: one tensor is on {NAME}, another of shape {tuple(there[0].shape)} on the CPU"
        )


def register() -> None:
    """Make the device known to torch, before the process's first backward pass: that is when torch counts
    devices.
    """
    if not _kept:
        _setup_privateuseone_for_python_backend(NAME)
        library = torch.library.Library("_", "IMPL")
        library.fallback(lambda func, *args, **kwargs: _run(func, args, kwargs), "PrivateUse1")
        _kept.append(library)


def install(put: Callable[[Any, str, Any], None]) -> torch.device:
    """The device, registered.

    `put(where, name, value)` replaces what torch cannot be told of a device made in Python: how
    `torch.tensor` puts one there, and generators of its own. Dropout's numbers are drawn on the CPU and
    moved, so that they are those of a run on the CPU.
    """
    register()
    # torch remembers once which functions follow `with torch.device(...)`: before one is replaced
    _device_constructors()
    plain, drawn = torch.tensor, seeded_dropout.draw
    owners: dict[int, torch.device] = {}
    generators: list[torch.Generator] = []  # kept, so that no other gets the number of one that is gone

    def tensor(*args: Any, device: torch.device | None = None, **kwargs: Any) -> Tensor:
        return plain(*args, **kwargs) if device is None else plain(*args, **kwargs).to(device)

    def generator_on(where: torch.device, *key: Any) -> torch.Generator:
        generators.append(seeds.generator(*key))
        owners[id(generators[-1])] = where
        return generators[-1]

    def draw(shapes: list[tuple[int, ...]], generator: torch.Generator) -> list[Tensor]:
        return [t.to(owners.get(id(generator), "cpu")) for t in drawn(shapes, generator)]

    put(torch, "tensor", tensor)
    put(seeds, "generator_on", generator_on)
    put(seeded_dropout, "draw", draw)
    return torch.device(f"{NAME}:0")
