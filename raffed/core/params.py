"""The vector arithmetic of the papers' equations, and the records that hold its vectors.

`Params` is a point in weight space, and `State` is a whole model.
"""

from __future__ import annotations

import dataclasses
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree
from typing_extensions import dataclass_transform

from raffed.own.resolve import stored_module

# Immutable records of tensors that torch.func can stack.
#
# They are the base of everything that ingredients remember or send.


REGISTRY: dict[str, type[Record]] = {}
"""Every record class by its stored name.

A checkpoint can only refer to these classes when it is read. Nothing is ever unpickled.
"""


@dataclass_transform(frozen_default=True)
class Record:
    """Base class of records. Each subclass is a frozen dataclass and a pytree node.

    So `vmap` and `grad` see the tensors inside a record.

    A subclass has a stored name, by which a checkpoint refers to it. For raffed's own classes this is the
    name of the class, or the name that it had when the first checkpoints were written, as in `class
    ClientState(Private, stored="Vault")`. So a class can be renamed without changing a file or a hash. For
    classes of other packages the stored name is `module:Class`, so that two packages can have a record of the
    same name. For classes of a file that was named by reference the module is the file as typed, such as
    `./prox.py:Class`, so that changed code can read its own records.

    Raises:
        TypeError: Another class is already stored under the name of a new subclass.
    """

    _compare: ClassVar[bool] = False  # off, since tensors have no single truth value; ingredients turn it on

    _names: ClassVar[tuple[str, ...]] = ()
    _stored: ClassVar[str] = ""

    def __init_subclass__(cls, stored: str = "") -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, eq=cls._compare)(cls)
        names = tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]

        def flatten(value: Record) -> tuple[list[pytree.PyTree], None]:
            return [getattr(value, name) for name in names], None

        def unflatten(children: Iterable[pytree.PyTree], _: None) -> Record:
            new = object.__new__(cls)  # without __init__, because inside vmap the leaves may be placeholders
            for name, child in zip(names, children, strict=True):
                object.__setattr__(new, name, child)
            return new

        cls._names = names
        cls._stored = stored or _name_in_files(cls)
        known = REGISTRY.get(cls._stored)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"{cls.__module__}.{cls.__qualname__} would be stored as {cls._stored!r}, as "
                f"{known.__module__}.{known.__qualname__} is; rename one of them"
            )
        pytree.register_pytree_node(
            cls, flatten, unflatten, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}"
        )
        REGISTRY[cls._stored] = cls

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def stored_name(kind: type[Record]) -> str:
    """Return the name by which checkpoints refer to a record class."""
    return kind._stored


def fields_of(value: Record) -> dict[str, Any]:
    """Return the fields of a record by name, in the order of declaration."""
    return {name: getattr(value, name) for name in value._names}


def _name_in_files(cls: type[Record]) -> str:
    built_in = cls.__module__.split(".")[0] == "raffed"
    return cls.__qualname__ if built_in else f"{stored_module(cls.__module__)}:{cls.__qualname__}"


Names = tuple[str, ...]
Shapes = tuple[tuple[int, ...], ...]
Buffer = NDArray[np.float32]
ALIGN = 16  # floats; tensors start on 64-byte boundaries, where CPU kernels are fastest


@dataclass(frozen=True)
class Layout:
    """Where each named tensor lies in one flat float32 buffer. Gaps between tensors hold zeros.

    Attributes:
        names: Names of the tensors, in order.
        shapes: Their shapes, in the same order.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> Layout:
        return Layout(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def numel(self) -> int:
        """How many numbers the tensors have together, without gaps."""
        return sum(self.counts)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        starts, at = [], 0
        for count in self.counts:
            starts.append(at)
            at += -(-count // ALIGN) * ALIGN
        return tuple(starts)

    @cached_property
    def size(self) -> int:
        """Length of the flat buffer, with gaps."""
        return self.offsets[-1] + -(-self.counts[-1] // ALIGN) * ALIGN if self.names else 0

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the named tensors as views of `flat` [size]."""
        where = zip(self.names, self.shapes, self.counts, self.offsets, strict=True)
        return {name: flat[at : at + count].view(shape) for name, shape, count, at in where}


class Params:
    """An immutable point in weight space: a mapping from names to tensors, with `+ - * /`.

    There are two forms, which behave alike. One flat buffer is used for what is sent or remembered, and needs
    one operation per equation. Separate tensors are used for what is being trained or stacked under vmap, so
    that autograd passes through.

    Args:
        tensors: Name → tensor of any shape.

    Raises:
        ValueError: An operation was given two points with different names.
    """

    __slots__ = ("_flat", "_layout", "_tensors")

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors: dict[str, Tensor] | None = dict(tensors)
        self._flat: Tensor | None = None
        self._layout: Layout | None = None

    @classmethod
    def from_flat(cls, layout: Layout, flat: Tensor) -> Params:
        """Wrap a flat buffer without copying it. The caller must not use the buffer afterwards.

        Args:
            layout: Where each tensor lies in the buffer.
            flat: The buffer [layout.size].
        """
        if flat.shape != (layout.size,):
            raise ValueError(
                f"Params: the buffer has {tuple(flat.shape)} numbers, but the layout needs ({layout.size},)"
            )
        point = cls.__new__(cls)
        point._tensors, point._flat, point._layout = None, flat, layout
        return point

    @property
    def tensors(self) -> dict[str, Tensor]:
        if self._tensors is None:
            assert self._layout is not None
            assert self._flat is not None
            self._tensors = self._layout.views(self._flat)
        return self._tensors

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = Layout.of(self.tensors)
        return self._layout

    @property
    def flat(self) -> Tensor:
        """The flat buffer [layout.size]. It is put together from the tensors if there is none yet."""
        if self._flat is None:
            flat = torch.zeros(self.layout.size, dtype=self.dtype, device=self.device)
            for name, view in self.layout.views(flat).items():
                view.copy_(self.tensors[name].detach())
            return flat
        return self._flat

    @property
    def is_flat(self) -> bool:
        return self._flat is not None

    @property
    def dtype(self) -> torch.dtype:
        return (
            self._flat.dtype
            if self._flat is not None
            else next((t.dtype for t in self.tensors.values()), torch.float32)
        )

    @property
    def device(self) -> torch.device:
        if self._flat is not None:
            return self._flat.device
        return next((t.device for t in self.tensors.values()), torch.device("cpu"))

    @property
    def requires_grad(self) -> bool:
        """Whether any tensor of this point has gradient history."""
        if self._flat is not None:
            return self._flat.requires_grad
        return any(tensor.requires_grad for tensor in self.tensors.values())

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:  # only shapes, so that private values never reach a log
        return f"Params({', '.join(f'{n}{list(s)}' for n, s in zip(self.layout.names, self.layout.shapes, strict=True))})"  # noqa: E501

    @property
    def names(self) -> tuple[str, ...]:
        return self._layout.names if self._layout is not None else tuple(self.tensors)

    def numel(self) -> int:
        """Return how many numbers this point has, without the gaps of its buffer."""
        return self.layout.numel

    def _map(self, op: Callable[[Tensor], Tensor]) -> Params:
        if self._flat is not None and self._layout is not None:
            return Params.from_flat(self._layout, op(self._flat))
        return Params({name: op(t) for name, t in self.tensors.items()})

    def _zip(self, other: Params, op: Callable[[Tensor, Tensor], Tensor]) -> Params:
        if self._flat is not None and other._flat is not None and self._layout == other._layout:
            assert self._layout is not None
            return Params.from_flat(self._layout, op(self._flat, other._flat))
        _check_same_names(self.names, other.names)
        others = other.tensors
        return Params({name: op(t, others[name]) for name, t in self.tensors.items()})

    def __add__(self, other: Params) -> Params:
        return self._zip(other, operator.add)

    def __sub__(self, other: Params) -> Params:
        return self._zip(other, operator.sub)

    def __mul__(self, factor: float | Tensor) -> Params:
        return self._map(lambda t: t * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | Tensor) -> Params:
        return self._map(lambda t: t / divisor)

    def __neg__(self) -> Params:
        return self._map(operator.neg)

    def where(self, condition: Tensor, other: Params) -> Params:
        """Return this point if `condition` holds, and `other` if not.

        Args:
            condition: A boolean tensor without dimensions.
            other: A point with the same names. NaN in the point that is not taken does not matter.
        """
        return self._zip(other, lambda a, b: torch.where(condition, a, b))

    def zeros(self) -> Params:
        return self._map(torch.zeros_like)

    def sq_norm(self) -> Tensor:
        """Return the sum of squares over all numbers, a tensor without dimensions."""
        if self._flat is not None:
            return self._flat.square().sum()
        return torch.stack([t.square().sum() for t in self.tensors.values()]).sum()

    def dot(self, other: Params) -> Tensor:
        """Return the sum of products over all numbers, a tensor without dimensions.

        Args:
            other: A point with the same names.
        """
        products = self._zip(other, operator.mul)
        if products._flat is not None:
            return products._flat.sum()
        return torch.stack([t.sum() for t in products.tensors.values()]).sum()

    def clone(self) -> Params:
        """Return an own copy in one flat buffer, without gradient history."""
        if not len(self):
            return self
        return Params.from_flat(self.layout, self.flat.detach().clone() if self.is_flat else self.flat)

    def only(self, names: Iterable[str]) -> Params:
        """Return the part with these names, in this point's order.

        It is this point itself if that is everything.

        Args:
            names: Names to keep.
        """
        wanted = set(names)
        if wanted >= set(self.names):
            return self
        return Params({n: t for n, t in self.tensors.items() if n in wanted}).clone()

    def arranged(self, names: Names) -> Params:
        """Return this point with its tensors in the order of some names. It is this point itself if they are.

        Code outside raffed may put points together in any order, but models are sent, added and copied as
        buffers, number by number.

        Args:
            names: The names of this point, in the wanted order.

        Raises:
            ValueError: They are not the names of this point.
        """
        if self.names == names:
            return self
        _check_same_names(self.names, names)
        point = Params({name: self.tensors[name] for name in names})
        return point.clone() if self.is_flat else point

    def joined(self, other: Params, order: Iterable[str]) -> Params:
        """Return this point and another one together.

        Args:
            other: The other point. Its value is used for a name that both have.
            order: All names, in the order of the result.
        """
        if not len(other):
            return self
        both = {**self.tensors, **other.tensors}
        return Params({name: both[name] for name in order}).clone()

    def to(self, device: torch.device) -> Params:
        return self if self.device == device else Params.from_flat(self.layout, self.flat.to(device))

    def __reduce__(self) -> tuple[Callable[[Names, Shapes, Buffer], Params], tuple[Names, Shapes, Buffer]]:
        # Ray keeps one NumPy buffer out of the pickle, and every actor of a node reads it without a copy.
        return _from_numpy, (self.layout.names, self.layout.shapes, self.flat.detach().cpu().numpy())


def redrawn(point: Params, generator: torch.Generator) -> Params:
    """Return a point with the numbers of every tensor in a random order.

    For weights that were drawn independently it is another draw from the same distribution. Constants stay.

    Args:
        point: The point.
        generator: The random stream, on the CPU.
    """
    orders = {name: torch.randperm(t.numel(), generator=generator) for name, t in point.tensors.items()}
    mixed = {name: t.flatten()[orders[name]].view(t.shape) for name, t in point.tensors.items()}
    return Params(mixed).clone()


def _check_same_names(some: Names, others: Names) -> None:
    odd = sorted({*some} ^ {*others})
    if odd:
        raise ValueError(f"Params: the two points have different names: {', '.join(odd[:4])}")


def _from_numpy(names: Names, shapes: Shapes, array: Buffer) -> Params:
    # Memory of the object store is read-only, and Params are never written to
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        flat = torch.from_numpy(np.asarray(array))
    # Memory from inside a message may be unaligned; kernels and thus bits may depend on that
    if flat.data_ptr() % (4 * ALIGN):
        flat = flat.clone()
    return Params.from_flat(Layout(names, shapes), flat)


def _unflatten(children: Iterable[Tensor], names: tuple[str, ...]) -> Params:
    return Params(dict(zip(names, children, strict=True)))


pytree.register_pytree_node(
    Params,
    lambda p: (list(p.tensors.values()), p.names),
    _unflatten,
    serialized_type_name="raffed.Params",
)


class State(Record):
    """A whole model.

    Attributes:
        w: The trainable parameters.
        b: The floating-point buffers, which are BatchNorm's running statistics.
    """

    w: Params
    b: Params

    def __add__(self, other: State) -> State:
        return State(self.w + other.w, self.b + other.b)

    def __mul__(self, factor: float | Tensor) -> State:
        return State(self.w * factor, self.b * factor)

    __rmul__ = __mul__

    def where(self, condition: Tensor, other: State) -> State:
        return State(self.w.where(condition, other.w), self.b.where(condition, other.b))

    def clone(self) -> State:
        return State(self.w.clone(), self.b.clone())

    def arranged(self, like: State) -> State:
        """Return this model with its tensors in another model's order (`Params.arranged`)."""
        if self.w.names == like.w.names and self.b.names == like.b.names:
            return self
        return State(self.w.arranged(like.w.names), self.b.arranged(like.b.names))

    def to(self, device: torch.device) -> State:
        return State(self.w.to(device), self.b.to(device))


R = TypeVar("R")


def arranged_like(record: R, like: R) -> R:
    """Return a record with the tensors of its points in the order of those of another record.

    Args:
        record: A record, a point, or anything else that consists of them.
        like: One of the same kind.

    Raises:
        ValueError: The two do not consist of the same parts, or a point has other names.
    """
    parts, kind = pytree.tree_flatten(record, is_leaf=_is_point)
    others, other_kind = pytree.tree_flatten(like, is_leaf=_is_point)
    if kind != other_kind:
        raise ValueError(f"{type(record).__name__}: it does not have the fields that it had before")
    pairs = list(zip(parts, others, strict=True))
    if all(point.names == other.names for point, other in pairs if _is_point(point) and _is_point(other)):
        return record
    arranged = [p.arranged(other.names) if _is_point(p) and _is_point(other) else p for p, other in pairs]
    whole: R = pytree.tree_unflatten(arranged, kind)
    return whole


def _is_point(value: object) -> bool:
    return isinstance(value, Params)
