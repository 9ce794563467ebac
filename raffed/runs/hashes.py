"""The hashes by which two runs are compared: of the server's weights and of all client states."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from raffed.core.params import State


def weights_sha256(state: State) -> str:
    """Return the SHA-256 of the named weights and buffers as float32, in the model's order."""
    total = hashlib.sha256()
    for params in (state.w, state.b):
        for name, tensor in params.tensors.items():
            total.update(name.encode())
            total.update(tensor.detach().cpu().numpy().tobytes())
    return total.hexdigest()


def client_states_sha256(digests: Mapping[int, str]) -> str:
    """Return one SHA-256 for all client states, from client → digest."""
    lines = "".join(f"{client} {digests[client]}\n" for client in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()
