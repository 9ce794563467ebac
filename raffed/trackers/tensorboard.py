"""Show a run's rounds in TensorBoard."""

from __future__ import annotations

from pathlib import Path

from raffed.runs.events import RoundEvent
from raffed.trackers.base import needs, numbers


class TensorBoard:
    """Write every number of a RoundEvent as a scalar `raffed/NAME` over the rounds, in an event file in a
    folder.

    Raises:
        UsageError: The package tensorboard is not installed (extra `tensorboard`).
    """

    def __init__(self, folder: Path | str) -> None:
        needs("tensorboard", "TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def __call__(self, event: RoundEvent) -> None:
        for name, value in numbers(event).items():
            self._writer.add_scalar(f"raffed/{name}", value, event.round)

    def close(self) -> None:
        self._writer.close()
