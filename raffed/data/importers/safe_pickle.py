"""Read pickles that hold NumPy arrays, dictionaries, lists, numbers and text, and nothing else.

A pickle is a program: it may name any function and call it. Here every name is refused except the three
that NumPy needs to rebuild an array. Even these are not NumPy's own: small stand-ins take what the pickle
says about an array, check it, and make the array from its bytes.
"""

from __future__ import annotations

import math
import pickle
import re
from typing import BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from raffed.errors import DataFileError

Array = npt.NDArray[np.generic]
Held = dict[str, "_PickledArray"]
_KINDS = re.compile(r"[biufSU]\d+|O8")


class _PickledKind:
    """What a pickle says about an array's type: its code, and the order of its bytes."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple[int, str, None, None, None, int, int, int]) -> None:
        self.order = state[1]
        if self.order not in ("<", ">", "|", "=") or state[2:5] != (None, None, None):
            raise pickle.UnpicklingError("an array has a type of several fields")

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype(self.order + self.code)


class _PickledArray:
    """An array of a pickle: `values`, or the one object that it holds (`item`)."""

    __slots__ = ("item", "values")

    def __setstate__(
        self, state: tuple[int, tuple[int, ...], _PickledKind, bool, bytes | list[Held]]
    ) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _PickledKind) or any(type(side) is not int or side < 0 for side in shape):
            raise pickle.UnpicklingError("an array is described in an unusual way")
        if isinstance(raw, list):
            if kind.code != "O8" or shape != () or len(raw) != 1:
                raise pickle.UnpicklingError("an array holds Python objects")
            self.item = raw[0]
            return
        if kind.code == "O8" or len(raw) != math.prod(shape) * kind.numpy.itemsize:
            raise pickle.UnpicklingError("the bytes of an array do not fit its shape")
        self.values = np.frombuffer(raw, kind.numpy).reshape(shape, order="F" if fortran else "C").copy()


class _MakeArray:
    """Stands for NumPy's `_reconstruct`.

    It has no attributes, because a pickle may set attributes of what it names.
    """

    __slots__ = ()

    def __call__(self, kind: str, shape: tuple[int, ...], code: bytes) -> _PickledArray:
        if kind != _NDARRAY:
            raise pickle.UnpicklingError("an array is rebuilt in an unusual way")
        return _PickledArray()


class _MakeKind:
    """Stands for `numpy.dtype`."""

    __slots__ = ()

    def __call__(self, code: str, align: bool = False, copy: bool = False) -> _PickledKind:
        if not isinstance(code, str) or not _KINDS.fullmatch(code):
            raise pickle.UnpicklingError(f"an array has the type {code!r}")
        return _PickledKind(code)


_NDARRAY = "numpy.ndarray"
_STAND_INS: dict[tuple[str, str], str | _MakeArray | _MakeKind] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _MakeKind(),
    ("numpy.core.multiarray", "_reconstruct"): _MakeArray(),
    ("numpy._core.multiarray", "_reconstruct"): _MakeArray(),
}


class ArrayUnpickler(pickle.Unpickler):
    """Finds the names that NumPy's arrays need, and refuses all others."""

    def find_class(self, module: str, name: str) -> str | _MakeArray | _MakeKind:
        """Return the stand-in for a name."""
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: str) -> NoReturn:
        """Refuse what lies outside the pickle."""
        raise pickle.UnpicklingError("it refers to objects outside the file")


def load_plain(file: BinaryIO, where: str) -> dict[str, Array]:
    """Return the dictionary of arrays that a pickle holds.

    Args:
        file: Where the pickle begins.
        where: Beginning of the message.

    Raises:
        DataFileError: The pickle names anything else, is damaged, or holds something else.
    """
    try:
        found = ArrayUnpickler(file).load()
        found = found.item if isinstance(found, _PickledArray) else found
        if not isinstance(found, dict):
            raise pickle.UnpicklingError(f"it holds a {type(found).__name__}")
        return {str(key): _array(key, value) for key, value in found.items()}
    except pickle.UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise DataFileError(
            f"{where} is refused: {reason}; only dictionaries of NumPy arrays are read from a pickle"
        ) from error
    except Exception as error:
        # A damaged pickle raises errors of almost any type
        raise DataFileError(f"{where} is a damaged pickle ({type(error).__name__}: {error})") from error


def _array(key: object, value: object) -> Array:
    if not isinstance(value, _PickledArray) or not hasattr(value, "values"):
        kind = "an object" if isinstance(value, _PickledArray) else f"a {type(value).__name__}"
        raise pickle.UnpicklingError(f"{key!r} holds {kind}")
    return value.values
