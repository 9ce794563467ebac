"""What methods with a frozen head share: only the body is trained, and the server keeps the head as it is."""

from __future__ import annotations

from raffed.core.context import ServerContext
from raffed.core.params import Params
from raffed.core.parts import Pass, in_part
from raffed.core.server import ServerRule

BODY_ONLY = (Pass("body"),)


class KeepHead(ServerRule[None]):
    """w^{t+1} = mean for the body; the head stays as it was.

    The clients do not train the head, so the mean of what they send is that head. But a mean of equal numbers
    may differ from them in the last bit, and noise that protects uploads would move the head.
    """

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        head = {name: w[name] for name in w.names if in_part(name, "head")}
        return None, Params({**mean.tensors, **head}).clone()


__all__ = ["BODY_ONLY", "KeepHead"]
