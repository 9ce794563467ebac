"""Measure what one client of a run costs on this machine, for the advice of `raffed doctor`.

The probe trains a few clients of the first round for a few steps, one by one and in stacks of growing size.
It only measures: nothing that it trains is kept.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from raffed.budget import free_memory, no_memory
from raffed.config.run import RunConfig
from raffed.config.sections import Convolutions, Execution
from raffed.core.messages import Broadcast
from raffed.core.round import server_init
from raffed.core.training.session import steps_of
from raffed.runtime.machine import COMPILED, could_be_compiled, usable_cores
from raffed.runtime.placement import ACTOR_BYTES, make_stacks
from raffed.runtime.setup import Setup
from raffed.runtime.worker import ClientWorker

STEPS = 4  # local steps of each client in the probe
STEPS_OF_A_GPU = 64  # it records steps, which pays in longer phases only
COHORTS = (8, 32, 100)
BUDGET = 20.0  # seconds after which a probe stops trying larger stacks
RAY_START = 12.0  # seconds until Ray and its actors are ready (measured: 9 to 16)
# Seconds per call and byte in a round on two actors (measured: 0.7 to 1.3 ms, 5 at 0.46 MB, 12 at 2.7)
CALLS, SENT_BYTE = 1e-3, 4.5e-9
WORTH = 0.85  # a stack must take less than this share of the time of one by one


@dataclass(frozen=True)
class Probe:
    """What the probe measured.

    Attributes:
        seconds: Size of a stack (1: one by one) → seconds of one local step of one client.
        client_bytes: Bytes that one client of this model adds at its peak, with its client state and data.
        steps: Local steps of a client of mean size in a round.
        sent: Bytes of a broadcast, by which calls to actors take longer.
        convolutions: Who computed the convolutions (`numerics.convolutions`).
    """

    seconds: dict[int, float]
    client_bytes: int
    steps: int  # of a client of mean size in a round
    sent: int = 0
    convolutions: Convolutions = "torch"

    @property
    def worthwhile(self) -> list[int]:
        """The first size measured (one by one), and the sizes of stacks that are clearly faster."""
        first = next(iter(self.seconds.values()))
        return [size for size, seconds in self.seconds.items() if seconds == first or seconds < WORTH * first]


@dataclass(frozen=True)
class Choice:
    """How a run is carried out, and why.

    `seconds` is the expected duration of the whole run, with its start.
    """

    execution: Execution
    cohort: int
    actors: int
    seconds: float
    why: str
    convolutions: Convolutions = "torch"


def measure_all(setup: Setup, device: str = "cpu") -> list[Probe]:
    """Measure a run as it is asked for and, if it could have them, also with compiled convolutions."""
    probes = [measure(setup, device)]
    config = setup.config
    data, on_gpu = setup.data, bool(config.runtime.gpu_fraction)
    shape, classes = data.input_shape, data.dataset.num_classes
    if config.numerics.convolutions == "torch" and could_be_compiled(
        setup.network, on_gpu, shape, classes, data.input_dtype
    ):
        numerics = replace(config.numerics, convolutions=COMPILED)
        probes.append(measure(replace(setup, config=replace(config, numerics=numerics)), device))
    return probes


def measure(setup: Setup, device: str = "cpu", sizes: Sequence[int] | None = None) -> Probe:
    """Train clients for a few steps each, in stacks of several sizes, and return the measurements.

    It takes a few seconds, and stops trying larger stacks after about 20 seconds, or where the memory does
    not hold one.

    Args:
        setup: The run.
        device: Where to train.
        sizes: Sizes of the stacks. None means one by one, and all of `COHORTS` that fit.
    """
    local = setup.config.local
    samples = setup.data.sizes_at(0)  # the probe trains as in round 0
    steps = STEPS if device == "cpu" else STEPS_OF_A_GPU
    short = replace(local, epochs=1e-9, epochs_to=0, min_steps=min(steps, local.steps(max(samples))))
    probed = replace(setup, config=setup.config.changed({"runtime.execution": "serial"}))
    probed = replace(probed, config=replace(probed.config, local=short))
    began, seconds, sent, bytes_one = time.perf_counter(), {}, 0, 0
    count = setup.config.federation.participants(len(setup.data.trainable))
    for size in sizes or (1, *(size for size in COHORTS if size <= count)):
        worker, broadcast = _probe_worker(probed, size, device)
        if size > 1 and not sizes and not worker.net.can_be_stacked:
            break
        sent = broadcast.nbytes()
        clients = sorted(setup.data.trainable, key=lambda c: -samples[c])[: max(size, min(4, count))]
        before = _peak(device)
        try:
            spent, taken = min(_timed(worker, broadcast, probed, clients, size) for _ in range(2))
        except (MemoryError, RuntimeError) as error:  # torch's own is a RuntimeError
            if size == 1 or no_memory(error) is None:
                raise
            break  # nor has a larger stack room
        seconds[size] = spent / taken
        bytes_one = bytes_one or max(_peak(device) - before, 0) // size
        if time.perf_counter() - began > BUDGET or spent > BUDGET / 4:
            break
    usual = steps_of(setup.method.training, local, sum(samples) // len(samples))
    return Probe(seconds, bytes_one, usual, sent, setup.config.numerics.convolutions)


def fastest(setup: Setup, probes: Sequence[Probe]) -> Choice:
    """Return the choice of the first probe, or of another one whose run is clearly shorter."""
    first, *others = (choose(setup, probe) for probe in probes)
    shorter = [choice for choice in others if choice.seconds < WORTH * first.seconds]
    return min(shorter, key=lambda choice: choice.seconds, default=first)


def choose(setup: Setup, probe: Probe, cores: int | None = None) -> Choice:
    """Choose between serial and Ray, and between one by one and stacks, by the shortest expected duration.

    The number of actors is that of the run's settings. Otherwise it is as many as the cores and the memory
    allow, where each actor has a process and one stack of the measured clients. With a share of a GPU it is
    as many as fill the GPUs, and the actors of one GPU are expected to be no faster together than one alone.

    Args:
        setup: The run.
        probe: The measurements.
        cores: Number of cores, or None for those of this machine.
    """
    federation, runtime = setup.config.federation, setup.config.runtime
    count = federation.participants(len(setup.data.trainable))
    free = free_memory()
    clients = federation.rounds * count
    start = RAY_START + federation.rounds * (CALLS + SENT_BYTE * probe.sent)
    best: Choice | None = None
    for cohort in probe.worthwhile:
        work = clients * probe.steps * probe.seconds[cohort]
        stacks = -(-count // cohort)
        fit = int(free // (ACTOR_BYTES + cohort * probe.client_bytes)) if free else stacks
        actors = runtime.actors or max(1, min(cores or usable_cores(), stacks, fit))
        beside = actors  # actors that are as fast beside each other as alone
        if runtime.gpu_fraction:
            cards = max(torch.cuda.device_count(), 1)
            actors = min(cards * round(1 / runtime.gpu_fraction), stacks)
            beside = min(cards, actors)
        on_ray = start + work * -(-stacks // beside) / stacks
        ways: dict[Execution, float] = {"serial": work, "ray": on_ray}
        for execution, seconds in ways.items():
            used = actors if execution == "ray" else 1
            if best is None or seconds < best.seconds:
                name = "one by one" if cohort == 1 else f"stacks of {cohort}"
                where = f"{used} actors" if execution == "ray" else "1 process"
                compiled = ", compiled convolutions" if probe.convolutions == COMPILED else ""
                why = f"{name} on {where}{compiled}: about {seconds:.0f} s for {clients} clients"
                best = Choice(execution, cohort if cohort > 1 else 0, used, seconds, why, probe.convolutions)
    assert best is not None
    return best


def repeats(config: RunConfig, choice: Choice) -> str:
    """Return the command-line options that carry out a run in the way that is fastest.

    If the configuration sets a share of a GPU or the clients per actor, these determine the number of actors.
    """
    runtime, on_ray = config.runtime, choice.execution == "ray"
    counted = on_ray and not (runtime.gpu_fraction or runtime.clients_per_actor)
    words = [
        f"--execution {choice.execution}",
        f"--actors {choice.actors}" if counted else "",
        f"--gpu-fraction {runtime.gpu_fraction}" if runtime.gpu_fraction else "",
        f"--cohort {choice.cohort}" if choice.cohort else "",
        "--convolutions compiled" if choice.convolutions == COMPILED else "",
    ]
    return " ".join(word for word in words if word)


def _probe_worker(setup: Setup, size: int, device: str) -> tuple[ClientWorker, Broadcast]:
    numerics = replace(setup.config.numerics, cohort=size if size > 1 else 0)
    worker = ClientWorker(replace(setup, config=replace(setup.config, numerics=numerics)), None, device)
    return worker, server_init(worker.method, worker.net.initial, worker.session.spec).broadcast()


def _timed(
    worker: ClientWorker, broadcast: Broadcast, setup: Setup, clients: Sequence[int], size: int
) -> tuple[float, int]:
    """Return the seconds of a round of some clients, and the steps that they made together.

    Passes with epochs of their own are not shortened.
    """
    from raffed.runtime.api import RoundOrder

    stacks = make_stacks(clients, setup.data.sizes_at(0), size)
    weights, versions = (1.0 / len(clients),) * len(clients), (0,) * len(clients)
    order = RoundOrder(broadcast, tuple(clients), weights, versions, False, stacks)
    began = time.perf_counter()
    _, reports = worker.train(broadcast, order.share(stacks))  # the sums are on the CPU, so the GPU is done
    return time.perf_counter() - began, sum(report.steps for report in reports)


def _peak(device: str) -> int:
    """Return the highest memory use of this process so far, in bytes.

    It is the GPU's memory if training runs there, and otherwise resident memory.
    """
    if device != "cpu":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
