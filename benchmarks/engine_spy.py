"""An author's interpreter with a spy: the driver as it is, and a file with what its first round began with.

The file holds the weights before and after the first round, who took part in which order, and every batch
of their training. Nothing is drawn and nothing is changed.

    python engine_spy.py FILE DRIVER
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data._utils.fetch import _MapDatasetFetcher

file, driver_file = sys.argv[1:3]
spec = importlib.util.spec_from_file_location("driver", driver_file)
assert spec is not None
assert spec.loader is not None
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)
fetched: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
fetch = _MapDatasetFetcher.fetch


def noted(self: Any, indices: Any) -> Any:
    batch = fetch(self, indices)
    if torch.is_grad_enabled():  # tests have it switched off
        fetched.append((torch.tensor(indices), batch[0].clone(), batch[1].clone()))
    return batch


def weights(server: Any) -> list[torch.Tensor]:
    model = getattr(server, "global_model", None) or server.server_model
    return [parameter.detach().clone() for parameter in model.parameters()]


class Spied(driver.Engine):  # type: ignore[misc, name-defined]
    def stepped(self, steps: range, frame: Any) -> Iterator[int]:
        for number, step in enumerate(super().stepped(steps, frame)):
            initial = weights(self.server)
            yield step
            if number == 0:
                chosen = getattr(self.server, "selected_clients", self.participants)
                names = [int(getattr(client, "id", client)) for client in chosen]
                found = {"before": initial, "after": weights(self.server), "clients": names}
                torch.save({**found, "batches": list(fetched)}, file)


_MapDatasetFetcher.fetch = noted
driver.Engine = Spied
driver.main()
