"""The runs of several seeds: their folders, their configurations, and how many of them execute at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raffed.commands.running import PLACED, check_continues, holds_run
from raffed.config.run import RunConfig, Runtime
from raffed.errors import RunFolderError, UsageError, check_range
from raffed.references.carried import defined_here
from raffed.references.gate import check_inside
from raffed.references.resolve import loading
from raffed.results.folder_names import folder_name
from raffed.results.tree import check_run_tree

MOST = 10_000
INSIDE = "RAFFED_SEED_PROCESS"  # set in the processes of seeds, which must not start further ones
Place = Mapping[str, str]  # environment of a process, beside that of the command


@dataclass(frozen=True, eq=False)  # a key of tables, each as itself
class SeedRun:
    """One run of several that differ in their seeds.

    Attributes:
        method: Its method, by name or reference; or what it is for.
        config: Its configuration, with its own seed.
        folder: Its folder, OUT/seed-K or OUT/METHOD/seed-K.
        accept: Whether own code may have changed since the run was begun.
    """

    method: str
    config: RunConfig
    folder: Path
    accept: bool = False

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.config.seed

    @property
    def title(self) -> str:
        """The run in words, such as "fedavg, seed 3"."""
        return f"{self.method}, seed {self.seed}"

    @property
    def finished(self) -> bool:
        """Whether the folder holds the finished run."""
        from raffed.results.runfile import read_run

        return holds_run(self.folder) and read_run(self.folder).get("state") == "finished"


def seed_folders(configs: Mapping[str, RunConfig], out: Path, alone: bool) -> dict[str, Path]:
    """Return method → the folder above the folders of its seeds: `out` itself for one method that is `alone`.

    Raises:
        RunFolderError: A run without seeds lies there.
    """
    parents = {name: out if alone else out / folder_name(name) for name in configs}
    for parent in (out, *parents.values()):
        if holds_run(parent):
            raise RunFolderError(
                f"{parent} holds a single run, but several seeds need folders seed-0, seed-1, … there; "
                "choose another --out"
            )
    return parents


def planned_seeds(
    configs: Mapping[str, RunConfig],
    out: Path,
    seeds: int,
    alone: bool = False,
    accept: bool = False,
) -> list[SeedRun]:
    """Return the runs of `seeds` seeds from that of each configuration on, seed after seed.

    The first seeds of all methods come first, so that what was done until a stop can be compared. Everything
    that can be checked without the data is checked here.

    Args:
        configs: Method → its run with the first seed.
        out: The folder of everything.
        seeds: Number of seeds, at least 1.
        alone: Whether the only method has its seeds directly in `out`.
        accept: Whether own code may have changed since runs were begun.

    Raises:
        UsageError: The number is not possible, a configuration is not, or a folder holds something else.
        RunFolderError: A folder holds a run with other settings or other code.
    """
    from raffed.methods import build_method

    check_range("seeds", seeds, 1, MOST)
    check_not_nested()
    check_inside(out, out / "report")
    parents = seed_folders(configs, out, alone)
    for config in configs.values():
        build_method(config.method, config.args)
    runs = [
        SeedRun(name, replace(config, seed=seed), parents[name] / f"seed-{seed}", accept)
        for k in range(seeds)
        for name, config in configs.items()
        for seed in (config.seed + k,)
    ]
    for run in runs:
        check_inside(out, run.folder)
        check_run_tree(run.folder)
        check_continues(run.folder, run.config, accept)
    return runs


def check_not_nested() -> None:
    """Refuse to start the runs of seeds from a file that is itself imported by one of them."""
    if INSIDE in os.environ or loading() is not None:
        raise UsageError(
            "the runs of several seeds would be started by a file that each of them imports; put the call "
            'below `if __name__ == "__main__":`'
        )


def with_one_process(runtime: Runtime, typed: bool = False) -> Runtime:
    """Return the runtime of a seed's run: one process, unless it says how its clients are placed.

    Args:
        runtime: As configured.
        typed: Whether `execution` was named on purpose, although it may be the default.
    """
    usual = all(getattr(runtime, name) == getattr(Runtime(), name) for name in PLACED)
    if usual and runtime.address is None and not typed:
        return replace(runtime, execution="serial")
    return runtime


def in_processes(runs: Sequence[SeedRun]) -> bool:
    """Return whether the runs execute in a process each. Those on Ray share one Ray, one after the other.

    What this notebook or prompt defines is known to its own process only, so such runs also stay in it.
    """
    from raffed.runtime.own_code import references_in

    if runs[0].config.runtime.execution != "serial":
        return False
    each = {run.method: run.config for run in runs}.values()
    own = [one for config in each for one in (*references_in(config).values(), config.data.dataset)]
    return not any(map(defined_here, own))


def places(runtime: Runtime, count: int) -> list[Place]:
    """Return a place for each run that may execute at the same time: never more than the cores, the memory or
    the shares of GPUs allow, and at least one.

    Args:
        runtime: That of the runs.
        count: Number of runs.
    """
    from raffed.budget import free_memory
    from raffed.runtime.machine import usable_cores
    from raffed.runtime.placement import ACTOR_BYTES

    fit, free = [count, usable_cores() // runtime.threads], free_memory()
    if free is not None:
        fit.append(int(free // ACTOR_BYTES))
    shares: list[Place] = [{}] * count
    if runtime.gpu_fraction:
        shares = [
            {"CUDA_VISIBLE_DEVICES": gpu} for _ in range(round(1 / runtime.gpu_fraction)) for gpu in _gpus()
        ]
    return shares[: max(1, min(fit))] or [{}]


def _gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [one.strip() for one in named.split(",") if one.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


__all__ = ["SeedRun", "in_processes", "places", "planned_seeds", "with_one_process"]
