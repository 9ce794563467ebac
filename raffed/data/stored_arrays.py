"""The arrays of one data set, and the hash that names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
_BLOCK = 2**24


@dataclass(frozen=True)
class StoredArrays:
    """Arrays of one data set, and what belongs to them.

    Attributes:
        arrays: Name → array: x, y, and perhaps x_test, y_test, clients, test_clients.
        words: Lists of text by name: class_names, client_names.
        name: Name for messages and results.
        source: Where the data came from, as typed.
        facts: What else is known, as JSON (`DataFacts`).
    """

    arrays: Mapping[str, Array]
    words: Mapping[str, tuple[str, ...]]
    name: str = ""
    source: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def sha256(self) -> str:
        """Return the SHA-256 (hex) over name, type, shape and bytes of every array, and over the words.

        `name`, `source` and `facts` do not count, so the same data from another file are the same entry.
        """
        digest = hashlib.sha256()
        for key in sorted(self.arrays):
            whole = np.ascontiguousarray(self.arrays[key])
            whole = whole.astype(whole.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{key} {whole.dtype.str} {whole.shape}\n".encode())
            flat = whole.reshape(-1).view(np.uint8)
            for first in range(0, len(flat), _BLOCK):
                digest.update(flat[first : first + _BLOCK].tobytes())
        digest.update(json.dumps({key: list(self.words[key]) for key in sorted(self.words)}).encode())
        return digest.hexdigest()
