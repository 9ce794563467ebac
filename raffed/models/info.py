"""What is known of a network before it is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raffed.models.net import Net

GROUP = "raffed.models"  # of entry points
TORCHVISION = "torchvision:"  # what the names of torchvision's networks begin with
Shape = tuple[int, ...]
Factory = Callable[..., "Net"]


@dataclass(frozen=True)
class ModelInfo:
    """What `raffed models` prints about one network, and where its factory, which has its name, lives."""

    name: str
    title: str
    layers: str  # one line, input to head; C is the number of classes
    in_shapes: tuple[Shape, ...]  # channels, height, width of the papers' inputs; the first is the default
    source: str
    module: str  # of this package, or with dots of another one
    takes_ids: bool = False  # whether samples are integers that number words, instead of measurements

    def load(self) -> Factory:
        """Return the factory. It is imported only now, and torch with it."""
        where = self.module if "." in self.module else f"raffed.models.{self.module}"
        found: Factory = getattr(importlib.import_module(where), self.name)
        return found
