"""What one client of a run costs on this machine, and how to place the run accordingly.

The probe trains a few clients of the first round for a few steps, one by one and as stacks of growing size.
It measures; nothing it trains is kept. What was chosen is written into the run, so that resuming and
verifying choose nothing.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from raffed.config.run import RunConfig
from raffed.core.messages import Broadcast
from raffed.core.round import server_init
from raffed.runtime.machine import free_memory, usable_cores
from raffed.runtime.placement import ACTOR_BYTES, make_stacks
from raffed.runtime.setup import Setup
from raffed.runtime.worker import ClientWorker

STEPS = 4  # local steps of a probed client
COHORTS = (8, 32, 100)
BUDGET = 20.0  # seconds a probe may take before it stops growing stacks
RAY_START = 12.0  # seconds until Ray and its actors are up (measured: 9 to 16 here)
CALLS, SENT_BYTE = (
    1e-3,
    4.5e-9,
)  # seconds they add to a round on two actors (measured: 0.7 to 1.3 ms, 5 at 0.46 MB, 12 at 2.7)
WORTH = 0.85  # a stack must be faster than this share of one by one, or the reference execution is kept


@dataclass(frozen=True)
class Probe:
    """seconds: of one local step of one client, by stack size (1: one by one). client_bytes: what one client
    of this model adds at its peak, vault and data included. sent: bytes of a broadcast, of which a call to
    actors takes longer.
    """

    seconds: dict[int, float]
    client_bytes: int
    steps: int  # of a whole client of mean size
    sent: int = 0

    @property
    def worthwhile(self) -> list[int]:
        """The first size measured (one by one), and the stack sizes that are clearly faster than that."""
        first = next(iter(self.seconds.values()))
        return [size for size, seconds in self.seconds.items() if seconds == first or seconds < WORTH * first]


@dataclass(frozen=True)
class Choice:
    """How a run is carried out, and why. seconds: expected, for the whole run, start-up included."""

    execution: str
    cohort: int
    actors: int
    seconds: float
    why: str

    def describe(self, probe: Probe) -> dict[str, Any]:
        """For run.json."""
        return {
            **asdict(self),
            "probe": {str(k): s for k, s in probe.seconds.items()},
            "client_bytes": probe.client_bytes,
        }


def measure(setup: Setup, device: str = "cpu", sizes: Sequence[int] | None = None) -> Probe:
    """Train clients for `STEPS` steps each, in stacks of the given sizes (None: one by one and all of COHORTS
    that fit).

        Takes a few seconds; stops growing stacks after some 20.
    """
    local = setup.config.local
    samples = setup.sizes_at(0)  # the probe is a round 0
    short = replace(local, epochs=1e-9, min_steps=min(STEPS, local.steps(max(samples))))
    probed = replace(
        setup,
        config=replace(setup.config, local=short, runtime=replace(setup.config.runtime, execution="serial")),
    )
    began, seconds, sent = time.perf_counter(), {}, 0
    count = setup.config.federation.participants(setup.partition.num_clients)
    bytes_one = 0
    for size in sizes or (1, *(size for size in COHORTS if size <= count)):
        host, broadcast = _host(probed, size, device)
        sent = broadcast.nbytes()
        clients = sorted(range(setup.partition.num_clients), key=lambda c: -samples[c])[
            : max(size, min(4, count))
        ]
        before = _peak(device)
        spent = min(_timed(host, broadcast, probed, clients, size) for _ in range(2))
        seconds[size] = spent / len(clients) / short.min_steps
        bytes_one = bytes_one or max(_peak(device) - before, 0) // size
        if time.perf_counter() - began > BUDGET or spent > BUDGET / 4:
            break
    return Probe(seconds, bytes_one, local.steps(sum(samples) // len(samples)), sent)


def choose(setup: Setup, probe: Probe, cores: int | None = None, memory: float | None = None) -> Choice:
    """Serial or Ray, one by one or in stacks: whatever ends first by the probe's figures.

    As many actors as the run says, or as `cores` (None: of this machine) and `memory` in bytes (None: what is
    free here) hold, each with a process and one stack of the clients that were measured.
    """
    federation, runtime = setup.config.federation, setup.config.runtime
    count = federation.participants(setup.partition.num_clients)
    free = free_memory() if memory is None else memory
    clients = federation.rounds * count
    start = RAY_START + federation.rounds * (CALLS + SENT_BYTE * probe.sent)
    best: Choice | None = None
    for cohort in probe.worthwhile:
        work = clients * probe.steps * probe.seconds[cohort]
        stacks = -(-count // cohort)
        fit = int(free // (ACTOR_BYTES + cohort * probe.client_bytes)) if free else stacks
        actors = runtime.actors or max(1, min(cores or usable_cores(), stacks, fit))
        for execution, seconds in (("serial", work), ("ray", start + work * -(-stacks // actors) / stacks)):
            used = actors if execution == "ray" else 1
            if best is None or seconds < best.seconds:
                name = "one by one" if cohort == 1 else f"stacks of {cohort}"
                where = f"{used} actors" if execution == "ray" else "1 process"
                why = f"{name} on {where}: about {seconds:.0f} s for {clients} clients"
                best = Choice(execution, cohort if cohort > 1 else 0, used, seconds, why)
    assert best is not None
    return best


def decided(config: RunConfig, choice: Choice) -> RunConfig:
    """The configuration with `execution = auto` replaced by what was chosen; a GPU's share or clients an
    actor, if given, say themselves how many actors there are.
    """
    runtime = replace(config.runtime, execution=choice.execution)
    if choice.execution == "ray" and not (runtime.gpu_fraction or runtime.clients_per_actor):
        runtime = replace(runtime, actors=choice.actors)
    return replace(config, runtime=runtime, numerics=replace(config.numerics, cohort=choice.cohort))


def repeats(config: RunConfig) -> str:
    """The options by which a run is carried out as a decided one."""
    runtime, cohort = config.runtime, config.numerics.cohort
    actors = f" --actors {runtime.actors}" if runtime.execution == "ray" and runtime.actors else ""
    return f"--execution {runtime.execution}{actors}" + (f" --cohort {cohort}" if cohort else "")


def _host(setup: Setup, size: int, device: str) -> tuple[ClientWorker, Broadcast]:
    numerics = replace(setup.config.numerics, cohort=size if size > 1 else 0)
    host = ClientWorker(replace(setup, config=replace(setup.config, numerics=numerics)), None, device)
    return host, server_init(host.method, host.net.initial, host.session.spec).broadcast()


def _timed(
    host: ClientWorker, broadcast: Broadcast, setup: Setup, clients: Sequence[int], size: int
) -> float:
    from raffed.runtime.api import RoundOrder

    stacks = make_stacks(clients, setup.sizes_at(0), size)
    weights, versions = (1.0 / len(clients),) * len(clients), (0,) * len(clients)
    job = RoundOrder(broadcast, tuple(clients), weights, versions, False, stacks)
    began = time.perf_counter()
    host.train(
        broadcast, job.share(stacks)
    )  # its sums are on the CPU: nothing is left to be waited for on a GPU
    return time.perf_counter() - began


def _peak(device: str) -> int:
    """Highest bytes of this process so far: on the GPU where it trains there, else resident memory."""
    if device != "cpu":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
