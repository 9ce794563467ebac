"""Where else the rounds of a run are shown: sinks, which are watchers (`raffed.run(..., watch=)`) that are closed at the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from raffed.core.errors import UsageError

if TYPE_CHECKING:
    from raffed.experiments.federation import RoundEvent


class Sink(Protocol):
    """Takes a run's rounds, in order. A run that goes on after a stop brings the rest of them."""

    def __call__(self, event: RoundEvent) -> None: ...

    def close(self) -> None:
        """Everything shown so far is on its way."""
        ...


class TensorBoard:
    """Every number of a RoundEvent as a scalar `raffed/NAME` over the rounds, in an event file in a folder.

    Raises UsageError without the package tensorboard (extra `tensorboard`).
    """

    def __init__(self, folder: Path | str) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise UsageError("the TensorBoard sink needs tensorboard: pip install 'raffed[tensorboard]'")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def __call__(self, event: RoundEvent) -> None:
        for name, value in event.as_dict().items():
            if name not in ("round", "rounds") and value is not None:
                self._writer.add_scalar(f"raffed/{name}", value, event.round)

    def close(self) -> None:
        self._writer.close()


def together(watchers: Sequence[Callable[[RoundEvent], None]]) -> Callable[[RoundEvent], None]:
    """One watcher that calls these in order."""

    def watch(event: RoundEvent) -> None:
        for one in watchers:
            one(event)

    return watch
