"""The reference: one process, one client after the other, for tests, debugging and very small work."""

from __future__ import annotations

from pathlib import Path

import torch

from raffed.core.boundary import Broadcast
from raffed.core.fold import Partial
from raffed.runtime.base import Job, Report, Tally
from raffed.runtime.host import Host, chunks, total
from raffed.runtime.setup import Setup


class SerialRuntime:
    """A `Runtime` in this process. Sets torch's threads to the run's number and puts them back on `close`."""

    def __init__(self, setup: Setup, vaults: Path | None = None) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(setup.config.runtime.threads)
        self._host = Host(setup, vaults, "cuda" if setup.config.runtime.gpu_fraction else "cpu")
        self._chunks = {part: chunks(setup, part) for part in ("test", "val")}

    def train(self, job: Job) -> tuple[Partial, list[Report]]:
        return self._host.train(job.broadcast, job.share(job.stacks))

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Tally:
        return total(self._host.evaluate(broadcast, self._chunks[part]))

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._host.store.digests(versions)

    def placement(self) -> dict[str, object]:
        return {"execution": "serial", "threads": torch.get_num_threads()}

    def close(self) -> None:
        torch.set_num_threads(self._threads)
