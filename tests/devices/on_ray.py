"""A run on client actors of half a GPU each, of which Ray was told though nobody has one.

    python -m tests.devices.on_ray METHOD FOLDER

The actors are raffed's, put on the device of this folder where they would take the GPU that Ray assigned.
Prints JSON: the run's hashes, and what each actor found itself to be.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray.runtime_env import RuntimeEnv

from raffed.results.runfile import read_run
from raffed.runs.federation import conduct
from raffed.runtime.placement import Resources, make_plan
from raffed.runtime.ray import client_actor, driver
from raffed.runtime.ray.driver import RayPool
from raffed.runtime.ray.own_ray import QUIET_RAY
from raffed.runtime.setup import prepare_run
from tests.runtime.conftest import on, small


@ray.remote
class ActorElsewhere(client_actor.ClientActor.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined]
    """A client actor on the device that is none."""

    def _device(self) -> str:
        from tests.devices import elsewhere

        self._assigned = super()._device()  # where it would have been
        return str(elsewhere.install(setattr))

    def ready(self) -> dict[str, Any]:
        ids = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        return {
            **super().ready(),
            "assigned": self._assigned,
            "gpus": ids,
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }


def main(method: str, path: Path) -> None:
    os.environ.update(QUIET_RAY)
    ray.init(
        num_cpus=2,
        num_gpus=1,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env=RuntimeEnv(env_vars={"PYTHONPATH": os.getcwd()}),
    )
    try:
        # "auto": none is looked for here
        setup = prepare_run(on(small(method), execution="ray", gpu_fraction=0.5, address="auto"))
        plan = make_plan(setup.config, 10, Resources(2, 1, 2**40))
        driver.ClientActor = ActorElsewhere  # type: ignore[misc,assignment]
        reference = ray.put(setup)
        actors = [
            driver.start_actor(reference, plan, number, path / "vaults") for number in range(len(plan.homes))
        ]
        pool = RayPool(setup, reference, plan, path / "vaults", actors, driver.start_actor)
        for _ in conduct(setup, path, False, pool, lambda: False):
            pass
        about = read_run(path)
        print(
            json.dumps(
                {"hashes": about["hashes"], "places": about["placement"]["places"], "num_gpus": plan.num_gpus}
            )
        )
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
