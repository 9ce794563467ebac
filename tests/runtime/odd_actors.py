"""Client actors with a weakness, for the tests of arrival order, of memory that runs out and of work
asked for ahead, and a run on a pool of them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import ray

from raffed import RunConfig
from raffed.results.runfile import read_run
from raffed.runtime.placement import Resources, make_plan
from raffed.runtime.ray.serving import Serving
from raffed.runtime.setup import prepare_run


def conducted(
    config: RunConfig, path: Path, kind: Any, *more: Any, actors: int = 2, later: int = 0
) -> dict[str, Any]:
    """A run on a pool of odd actors, which are given `more`; its run.json. Actors that replace others ask for
    `later` cores.
    """
    from raffed.runs.federation import conduct
    from raffed.runtime.ray.driver import RayPool

    setup = prepare_run(config)
    plan = make_plan(setup.config, 10, Resources(2, 0, 2**40))
    reference = ray.put(setup)

    def start(ref: Any, plan: Any, actor: int, vaults: Path, cores: int = later) -> Any:
        return kind.options(num_cpus=cores).remote(ref, str(vaults), plan.homes[actor], actor, *more)

    started = [start(reference, plan, actor, path / "vaults", 0) for actor in range(actors)]
    pool = RayPool(setup, reference, plan, path / "vaults", started, start)
    for _ in conduct(setup, path, False, pool, lambda: False):
        pass
    return read_run(path)


class Plain(Serving):
    """A client actor as the pool calls it."""

    def __init__(self, setup: Any, vaults: str, home: tuple[int, ...], number: int) -> None:
        from raffed.runtime.worker import ClientWorker

        self.host, self.number = ClientWorker(setup, Path(vaults), home=frozenset(home)), number

    def ready(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}

    def train(self, broadcast: Any, share: Any) -> Any:
        return self.host.train(broadcast, share)

    def evaluate(self, broadcast: Any, chunks: range) -> Any:
        return self.host.evaluate(broadcast, chunks)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self.host.store.digests(versions)


@ray.remote
class FarActor(Plain):
    """Says that it is on another node, and dies once, in the second round, if it is number 1."""

    def ready(self) -> dict[str, Any]:
        return {**super().ready(), "node": "far"}

    def train(self, broadcast: Any, share: Any) -> Any:
        if self.number == 1 and broadcast.round == 1 and not os.path.exists(self.sign):
            Path(self.sign).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train(broadcast, share)

    def __init__(self, setup: Any, vaults: str, home: tuple[int, ...], number: int) -> None:
        super().__init__(setup, vaults, home, number)
        self.sign = f"{vaults}-died"

    def add_here(self, asked: list[Any]) -> Any:
        from raffed.runtime.ray.client_actor import add_here

        found = add_here(asked)
        with open(f"{self.sign}-added", "a") as file:
            file.write(f"{len(asked)} {len(found[2])}\n")
        return found


@ray.remote
class HungryActor(Plain):
    """Actor 0 runs out of memory in the third round, when half of its share is done and its vaults are
    written.
    """

    def train(self, broadcast: Any, share: Any) -> Any:
        import torch

        if self.number == 0 and broadcast.round == 2:
            super().train(broadcast, type(share)(share.stacks[:1], share.measure))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return super().train(broadcast, share)


@ray.remote
class BrokenActor(Plain):
    """Actor 1 cannot start; every start of it leaves a line."""

    def __init__(self, setup: Any, vaults: str, home: tuple[int, ...], number: int) -> None:
        if number == 1:
            with (Path(vaults).parents[1] / "starts").open("a") as starts:
                starts.write("1\n")
            raise RuntimeError("Found no NVIDIA driver here.\nCheck that\n  you have one.")
        super().__init__(setup, vaults, home, number)
