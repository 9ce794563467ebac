"""Plain SGD that counts the steps of all clients of a process, for peers that make their own optimizers."""

from __future__ import annotations

from typing import Any

import torch


class Counted(torch.optim.SGD):
    """torch.optim.SGD, with the number of steps that were made by all of them together."""

    steps = 0

    def step(self, *given: Any, **named: Any) -> Any:
        Counted.steps += 1
        return super().step(*given, **named)
