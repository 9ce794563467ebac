"""What crosses between client and server, and what never does.

A client keeps a `ClientState`. It receives a `Broadcast` and answers with an `Upload`. Only a `Wire` fits
into the latter two. A `Private` record refuses to be pickled, which is how Ray moves objects, so private
state cannot leave by accident. See docs/design.md §9. The golden wire table lists the fields of all messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, SupportsIndex

import torch
from torch import Tensor
from typing_extensions import TypeVar

from raffed.core.params import Params, Record, State, fields_of
from raffed.errors import BoundaryError

# Move records between devices, and what a field of a record can hold.


R = TypeVar("R", bound=Record)
# What a field of a record holds
Value = Tensor | Params | Record | dict[str, Record] | tuple[Any, ...] | float | str | None


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
    return value.replace(**{name: _field_moved(field, device) for name, field in fields.items()})


def _field_moved(value: Value, device: torch.device) -> Value:
    if isinstance(value, Tensor | Params):
        return value.to(device)
    if isinstance(value, Addressed):
        return value
    if isinstance(value, Record):
        return _moved(value, device)
    if isinstance(value, dict):
        return {name: _moved(record, device) for name, record in value.items()}
    if isinstance(value, tuple):
        return tuple(_field_moved(part, device) for part in value)
    return value


class Wire(Record):
    """A record that may cross between client and server, in either direction.

    Its fields are tensors, points, numbers, text or other Wires.

    Attributes:
        labels: Names of fields that identify the message and are not counted as sent.

    Raises:
        BoundaryError: A field holds something else, or a tensor with gradient history.
    """

    labels: ClassVar[tuple[str, ...]] = ()  # fields that are not counted as sent

    def __post_init__(self) -> None:
        for name in self._names:
            value = getattr(self, name)
            # A quick test, because most fields pass it in every round
            if type(value) not in _PLAIN and not (type(value) is Params and not value.requires_grad):
                _refuse(self, name, value)

    def numbers(self) -> dict[str, int]:
        """Return how many numbers each field sends, by the path of the field."""
        return dict(_numbers("", self))

    def nbytes(self) -> int:
        """Return the number of bytes that are sent: 4 for a number (float32 or a count), 1 for a flag."""
        return _nbytes(self)


class Summable(Wire):
    """A `Wire` of which the server needs only the sum over clients.

    Actors add up their clients' messages before they answer.

    Attributes:
        fraction_bits: Floats are added as integer multiples of 2^-fraction_bits, within ±2^(62 -
            fraction_bits). The default 44 holds weights to beyond float32's last bit. Sums over many samples
            need a wider range.
        rows: Name of a field [C] that is 0 for the classes about which this client says nothing, or "". If it
            is set, only the rows of the other classes are counted as sent in every field, which is what a
            message of rows and class numbers takes. Sums have all C rows. So have masked messages, which are
            nevertheless counted in the same way.
    """

    fraction_bits: ClassVar[int] = 44
    rows: ClassVar[str] = ""


class Private(Record):
    """A record that stays on the side that holds it.

    Raises:
        BoundaryError: It was about to be pickled, copied with `copy`, or sent through Ray.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise BoundaryError(
            f"{type(self).__name__} is private and cannot be sent; return a Wire if a part of it is meant to "
            f"travel"
        )


class Broadcast(Wire):
    """What the server sends: the shared weights, the shared buffers, and the message of each ingredient."""

    labels = ("round",)

    round: int
    w: Params
    b: Params
    slots: dict[str, Wire]


class Addressed(Wire):
    """A message of which each client gets a part of its own.

    What a client downloads is its reply, of which the message itself is no part. Only the simulation moves
    the whole of it. It stays on the CPU, where replies are made.
    """

    def reply(self, b: Broadcast, client: int) -> Broadcast:
        """Return what a client downloads. It depends on nothing but this message and the arguments.

        Args:
            b: What all clients would download, without any message of this kind.
            client: Number of the client. It may be one that the server has never heard of.

        Returns:
            `b` with other weights, statistics or messages. Names and shapes of the first two stay.
        """
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., Addressed], tuple[Any, ...]]:
        # As points, whose numbers every actor of a node reads without a copy
        fields = fields_of(self)
        points = {name: Params({name: field}) for name, field in fields.items() if isinstance(field, Tensor)}
        return _readdressed, (type(self), fields | points, tuple(points))


def _readdressed(kind: type[Addressed], fields: Mapping[str, Any], points: Sequence[str]) -> Addressed:
    return kind(**{**fields, **{name: fields[name][name] for name in points}})


class Upload(Wire):
    """What a client sends: only the shared weights and buffers, and the message of each ingredient.

    `n` is the number of training samples, and `report` what the weights of the mean need to know about the
    class counts (`Reweighting.report`). Each is None if the mean does not use it. `shares` are the client's
    shares of the columns into which uploads are added up (`Ingredient.shares`) [K], or None.
    """

    n: int | None
    w: Params
    b: Params
    slots: dict[str, Wire]
    report: Tensor | None = None
    shares: Tensor | None = None

    def nbytes(self) -> int:
        """Return the same as `Wire.nbytes`, but faster: it is called for every client in every round."""
        reported = sum(tensor.numel() for tensor in (self.report, self.shares) if tensor is not None)
        return 4 * (self.w.numel() + self.b.numel() + (self.n is not None) + reported) + sum(
            message.nbytes() for message in self.slots.values()
        )


class ClientState(Private, stored="Vault"):
    """What a client keeps between rounds: own layers v, own buffers b, and ingredients' memories."""

    v: Params
    b: Params
    slots: dict[str, Private]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to keep, as in FedAvg."""
        return not (len(self.v) or len(self.b) or self.slots)


class ServerState(Private, stored="Server"):
    """What the server keeps between rounds.

    Its Wires are broadcast. Its Private records, such as moments and FedDyn's h, are not.
    """

    round: int
    w: Params
    b: Params
    slots: dict[str, Wire | Private]

    def broadcast(self) -> Broadcast:
        return Broadcast(
            self.round, self.w, self.b, {q: v for q, v in self.slots.items() if isinstance(v, Wire)}
        )


Memory = TypeVar("Memory", bound=Private | None, default=Any)
"""What a client keeps for one ingredient."""

Message = TypeVar("Message", bound=Wire | None, default=Any)
"""What a client sends for one ingredient."""

ServerMemory = TypeVar("ServerMemory", bound=Wire | Private | None, default=Any)
"""What the server keeps for one ingredient or for its own rule. A `Wire` is broadcast."""


_PLAIN = (int, float, str, type(None))


def _refuse(wire: Wire, name: str, value: Value) -> None:
    if isinstance(value, _PLAIN):
        return
    where = f"{type(wire).__name__}.{name}"
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(inner, Wire):
                raise BoundaryError(
                    f"{where}[{key!r}] is a {type(inner).__name__}: only a Wire may travel in a slot"
                )
    elif isinstance(value, (Params, Tensor, State)):
        live = (
            value.w.requires_grad or value.b.requires_grad
            if isinstance(value, State)
            else value.requires_grad
        )
        if live:
            raise BoundaryError(f"{where} carries gradient history: detach it before it is sent")
    elif not isinstance(value, Wire):
        raise BoundaryError(
            f"{where} is a {type(value).__name__}: only Wire, Params, State, Tensor, int, float and str may "
            f"travel"
        )


def _payload(value: Record) -> dict[str, Value]:
    labels = value.labels if isinstance(value, Wire) else ()
    fields = {name: each for name, each in fields_of(value).items() if name not in labels}
    if not isinstance(value, Summable) or not value.rows:
        return fields
    told = int(torch.count_nonzero(getattr(value, value.rows)))
    # The count does not depend on which rows are sent
    return {name: each[:told] if isinstance(each, Tensor) else each for name, each in fields.items()}


def count(value: Value) -> int:
    """Return how many numbers a record, a point or a tensor holds."""
    return sum(number for _, number in _numbers("", value))


def _numbers(path: str, value: Value) -> list[tuple[str, int]]:
    if isinstance(value, Params):
        return [(path, value.numel())]
    if isinstance(value, Tensor):
        return [(path, value.numel())]
    if isinstance(value, dict):
        return [
            row for key, inner in value.items() for row in _numbers(f"{path}.{key}" if path else key, inner)
        ]
    if isinstance(value, Record):
        rows = _payload(value).items()
        return [row for key, inner in rows for row in _numbers(f"{path}.{key}" if path else key, inner)]
    return [] if value is None or isinstance(value, str) else [(path, 1)]


def _nbytes(value: Value) -> int:
    if isinstance(value, Params):
        return 4 * value.numel()
    if isinstance(value, Tensor):
        return value.numel() * (1 if value.dtype == torch.bool else 4)
    if isinstance(value, dict):
        return sum(_nbytes(inner) for inner in value.values())
    if isinstance(value, Record):
        return sum(_nbytes(inner) for inner in _payload(value).values())
    return 0 if value is None or isinstance(value, str) else 4
