"""FedAnchor: each client remembers where its last training ended, and stays near it."""

from __future__ import annotations

from typing import Annotated

import raffed
from raffed import Context, Doc, Forward, Method, Params, Private, Range, Term
from torch import Tensor


class LastModel(Private):
    """The weights with which this client ended its last training. They never leave the client."""

    w: Params


class Anchor(Term[LastModel]):
    """(mu / 2) |w - a|^2, where a is the middle of the downloaded and the last weights."""

    mu: float

    def client_init(self, k: Context) -> LastModel:
        """Return the memory of a client that takes part for the first time."""
        return LastModel(k.w0)

    def loss(self, f: Forward, k: Context[LastModel]) -> Tensor:
        """Return the value of the term on one batch; `f.w` is trained, `k.w0` was downloaded."""
        return self.mu / 2 * (f.w - (k.w0 + k.mine.w) / 2).sq_norm()

    def finish(self, k: Context[LastModel]) -> tuple[LastModel, None]:
        """Return what the client keeps and what it sends beside its weights, here nothing."""
        return LastModel(k.w), None


@raffed.method(title="FedAnchor", source="this example", space={"mu": [0.01, 0.1, 1.0]})
def fedanchor(
    mu: Annotated[float, Range(0.0, 1e3), Doc("Weight of the anchor; 0 is FedAvg.")] = 0.1,
) -> Method:
    """FedAvg with a pull to the middle of the server's model and the client's last one."""
    return Method("FedAnchor", terms=(Anchor(mu),) if mu else ())
