"""raffed as a contestant: its own round loop, on two Ray actors or in one process."""

from __future__ import annotations

import atexit
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from benchmarks.contestant import Contestant
from benchmarks.workloads import BenchmarkSetup
from raffed.config.sections import Numerics
from raffed.core.aggregation.uploads import PartialSum
from raffed.runs.checkpoint import CLIENT_STATES
from raffed.runs.events import RoundEvent
from raffed.runs.federation import RoundLoop
from raffed.runs.folder import RunFolder
from raffed.runtime.api import Asked, Report, RoundOrder, ServerWork
from raffed.runtime.placement import Resources, make_plan
from raffed.runtime.setup import Setup
from raffed.runtime.worker import SerialBackend

ACTORS = 2
T = TypeVar("T")


class Counted:
    """A runtime that remembers the steps of its last round, and what its clients reported."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.steps = 0
        self.reports: list[Report] = []

    def train(self, job: RoundOrder) -> Asked[tuple[PartialSum, list[Report]]]:
        asked = self._runtime.train(job)

        def trained() -> tuple[PartialSum, list[Report]]:
            partial, reports = asked()
            self.steps = sum(report.steps for report in reports)
            self.reports = reports
            return partial, reports

        return trained

    @property
    def apart(self) -> bool:
        return bool(self._runtime.apart)

    def server_work(self, work: ServerWork[T]) -> T:
        made: T = self._runtime.server_work(work)
        return made


class Raffed(Contestant):
    """A federation on a runtime; evaluation and checkpoints stay off, because the workloads' intervals
    are out of reach.
    """

    def __init__(self, setup: Setup, numerics: Numerics, start: Callable[[Setup, Path], Any]) -> None:
        setup = BenchmarkSetup(
            dataclasses.replace(setup.config, numerics=numerics), setup.dataset, setup.partition
        )
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "run"
        self.states = path / CLIENT_STATES
        self._runtime = start(setup, self.states)
        self._counted = Counted(self._runtime)
        self._last: RoundEvent | None = None
        self._federation = RoundLoop(setup, self._counted, RunFolder(path, setup))  # type: ignore[arg-type]

    def round(self) -> int:
        self._last = self._federation.step()
        return self._counted.steps

    def rounds(self, count: int) -> Iterator[int]:
        """As `raffed run` makes them: a round is recorded while the next one trains."""
        for event in self._federation.rounds(count=count):
            self._last = event
            yield self._counted.steps

    def parts(self) -> dict[str, float]:
        profile = None if self._last is None else self._last.profile
        return {} if profile is None else profile._asdict()

    def reports(self) -> list[Report]:
        """What the clients of the last round reported."""
        return self._counted.reports

    def weights(self) -> dict[str, Tensor]:
        server = self._federation.now.server
        return {**server.w.tensors, **server.b.tensors}

    def close(self) -> None:
        self._runtime.close()
        self._folder.cleanup()


def on_ray(setup: Setup, vaults: Path, actors: int = ACTORS) -> Any:
    """Client actors that have loaded torch and their data; on this machine's first GPU if the setup gives
    each a share of one.
    """
    import ray

    from raffed.runtime.ray.driver import RayPool, start_actor
    from raffed.runtime.ray.own_ray import OwnRay

    gpus = 1 if setup.config.runtime.gpu_fraction else 0
    if not ray.is_initialized():  # as `raffed run` starts it
        own = OwnRay()
        own.start(num_cpus=actors, num_gpus=gpus)
        atexit.register(own.end)
    plan = make_plan(setup.config, setup.partition.num_clients, Resources(actors, gpus, 2**40))
    reference = ray.put(setup)
    handles = [start_actor(reference, plan, actor, vaults) for actor in range(actors)]
    pool = RayPool(setup, reference, plan, vaults, handles, start_actor)
    pool.placement()
    return pool


def in_process(setup: Setup, vaults: Path) -> SerialBackend:
    return SerialBackend(setup, vaults)
