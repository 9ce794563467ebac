"""What FL-bench's workers import: its client with a count of steps, and a network in its form.

FL-bench's checkout must be on the path before this is imported.
"""

from __future__ import annotations

from typing import Any

from src.client.fedavg import FedAvgClient
from src.utils.models import DecoupledModel
from torch import nn


class CountingClient(FedAvgClient):  # type: ignore[misc]
    """A client that sends the number of its steps along."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.made = 0
        self.optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.made += 1

    def set_parameters(self, package: dict[str, Any]) -> None:
        self.made = 0
        super().set_parameters(package)

    def package(self) -> dict[str, Any]:
        return {**super().package(), "steps": self.made}


class Flat(DecoupledModel):  # type: ignore[misc]
    """Body and head, as FL-bench calls them."""

    def __init__(self, base: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.base, self.classifier = base, classifier
