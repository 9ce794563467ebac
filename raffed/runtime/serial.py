"""The reference: one process, one client after the other, for tests, debugging and very small work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from raffed.core.boundary import Broadcast
from raffed.core.fold import Partial
from raffed.runtime.base import Asked, Job, Report, Standing, Tally
from raffed.runtime.host import Host, chunks, total
from raffed.runtime.process import gpu_of, keep_freed_memory
from raffed.runtime.setup import Setup
from raffed.runtime.torch_settings import set_threads


class SerialRuntime:
    """A `Runtime` in this process: it does what it was asked for once the answer is wanted.

    The thread that calls works with the run's number of torch's threads and gets its own back on `close`; other threads of the
    program keep theirs. Freed memory is kept (runtime/process.py).
    """

    def __init__(self, setup: Setup, vaults: Path | None = None) -> None:
        self._before, self._threads = torch.get_num_threads(), setup.config.runtime.threads
        set_threads(self._threads)
        keep_freed_memory()
        self._host = Host(setup, vaults, "cuda" if setup.config.runtime.gpu_fraction else "cpu")
        self._chunks = {part: chunks(setup, part) for part in ("test", "val")}

    def train(self, job: Job) -> Asked[tuple[Partial, list[Report]]]:
        def trained() -> tuple[Partial, list[Report]]:
            set_threads(self._threads)  # whoever watches the run may have changed it
            return self._host.train(job.broadcast, job.share(job.stacks))

        return trained

    def evaluate(self, broadcast: Broadcast, part: str = "test") -> Asked[Tally]:
        return lambda: total(self._host.evaluate(broadcast, self._chunks[part]))

    def survey(self, job: Job, whole: Broadcast | None) -> list[Standing]:
        return self._host.survey(job.broadcast, whole, job.share(job.stacks))

    def own_layers(self, job: Job) -> list[NDArray[np.int64]]:
        found = self._host.own_layers(job.share(job.stacks))
        return [] if found is None else [found]

    def vault_digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._host.store.digests(versions)

    def placement(self) -> dict[str, object]:
        return {"execution": "serial", "threads": torch.get_num_threads(), **gpu_of(self._host.device)}

    def close(self) -> None:
        set_threads(self._before)
