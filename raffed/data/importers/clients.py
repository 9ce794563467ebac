"""Number the clients that a column, a folder or an array names."""

from __future__ import annotations

import unicodedata

import numpy as np
import numpy.typing as npt

from raffed.data.importers.features import as_array
from raffed.errors import UsageError

IntArray = npt.NDArray[np.int64]
Names = tuple[str, ...]


def as_clients(
    where: str, given: npt.ArrayLike | None, count: int, known: Names = ()
) -> tuple[IntArray | None, Names]:
    """Return the number of each sample's client, int64 [N], and the clients' names by number.

    Clients are numbered in the order of their names: integers by size, text by alphabet.

    Args:
        where: Beginning of the message.
        given: The client of every sample, as integers or text; None if there are no clients.
        count: Number of samples.
        known: Names of the clients of the training part; a client of another name gets -1.

    Raises:
        UsageError: The array has another type or length, a name is empty, or two names look the same, also
            one of each part.
    """
    if given is None:
        return None, ()
    who = as_array(where, given)
    if who.dtype.kind == "O":
        who = _from_objects(where, who)
    if who.ndim != 1 or (who.size and who.dtype.kind not in "iuU"):
        raise UsageError(
            f"{where} is {who.dtype} {who.shape}, but must be one integer or text per sample, ({count},)"
        )
    if len(who) != count:
        raise UsageError(f"{where} has {len(who)} entries for {count} samples")
    found, places = np.unique(who, return_inverse=True)
    names = tuple(str(one) for one in found)
    check_names(where, tuple(dict.fromkeys((*known, *names))))
    if not known:
        return places.astype(np.int64), names
    number = {name: place for place, name in enumerate(known)}
    table = np.array([number.get(name, -1) for name in names], dtype=np.int64)
    return table[places] if len(who) else np.zeros(0, np.int64), known


def check_names(where: str, names: Names) -> None:
    """Refuse a client without a name, and two clients whose names look the same."""
    alike: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFC", name).strip()
        if not plain:
            raise UsageError(f"{where}: a client has an empty name; name it or remove its samples")
        other = alike.setdefault(plain, name)
        if other != name:
            raise UsageError(f"{where}: the client names {other!r} and {name!r} look the same; make them one")


def _from_objects(where: str, who: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    for number, one in enumerate(who.flat):
        if one is None or isinstance(one, float):
            raise UsageError(f"{where} has no client in row {number} ({one}); name it or remove the row")
    kinds = {type(one) for one in who.flat}
    if kinds <= {str, np.str_}:
        return who.astype(str)
    if kinds <= {int, np.int64, np.int32}:
        return who.astype(np.int64)
    shown = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UsageError(f"{where} holds objects of type {shown}, but must be one integer or text per sample")
