"""How much of the bare loop's step torch's own kernels take: the least that a simulator which calls them can
need.

    python -m benchmarks.kernels [--only W1] [--repetitions 5]

One process each, one thread, one epoch of a round's clients, blocks alternating, medians of ratios to the
bare loop's block. Rows: the bare loop; raffed's serial execution; the forward and backward pass alone on
batches that lie ready, images channels-last and freed memory kept as in raffed, in fp32 and bf16; the same
and the fused optimiser. Where clients are stacked (W3): raffed's stack, and its passes alone. RAFFED_DATA
holds the data.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.bare import Floor, client_tensors
from benchmarks.ours import Raffed, in_process
from benchmarks.workloads import WORKLOADS, Workload, initial_net
from raffed.config.sections import Numerics
from raffed.core.training.optimizers import fused_step
from raffed.core.training.task import Solver
from raffed.runs.participation import draw_participants
from raffed.runtime.machine import begin_training
from raffed.runtime.setup import Setup

Batches = list[tuple[Tensor, Tensor]]
Block = Callable[[], object]


def batches_of(setup: Setup) -> list[Batches]:
    """An epoch of every participant of the first round, gathered beforehand, in the order of the samples."""
    size, found = setup.config.local.batch_size, []
    convolves = any(isinstance(layer, nn.Conv2d) for layer in initial_net(setup).modules())
    for client in draw_participants(setup.data, 0):
        x, y = client_tensors(setup, client)
        x = x.to(memory_format=torch.channels_last) if convolves else x
        found.append(list(zip(x.split(size), y.split(size), strict=True)))
    return found


def passes(setup: Setup, clients: list[Batches], *, low: bool = False, update: bool = False) -> Block:
    """Forward and backward of every batch, one after the other; `update`: and the fused optimiser."""
    net, local = initial_net(setup).train(), setup.config.local
    leaves = list(net.parameters())
    weights = [p.detach() for p in leaves]
    velocity = [torch.zeros_like(w) for w in weights]
    solver = Solver(local.lr, local.momentum, local.weight_decay)

    def block() -> None:
        for x, y in (batch for batches in clients for batch in batches):
            with torch.autocast("cpu", torch.bfloat16) if low else nullcontext():
                logits = net(x)[0]
            grads = torch.autograd.grad(F.cross_entropy(logits.float(), y), leaves)
            if update:
                fused_step(weights, list(grads), velocity, solver.lr, solver.momentum, solver.weight_decay)

    return block


def stacked_passes(setup: Setup, clients: list[Batches]) -> Block:
    """Forward and backward of all clients' batches that have one size at once, as
    `raffed.core.stacked.executor` groups them.
    """
    net = initial_net(setup).train()
    params, buffers = stack_module_state([net] * len(clients))
    leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
    ticks = []
    for number in range(max(len(batches) for batches in clients)):
        sizes: dict[int, list[int]] = {}
        for client, batches in enumerate(clients):
            if number < len(batches):
                sizes.setdefault(len(batches[number][1]), []).append(client)
        for members in sizes.values():
            x, y = (torch.stack([clients[client][number][part] for client in members]) for part in (0, 1))
            ticks.append((torch.tensor(members), x, y))

    def loss(own: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, {**own, **buffers}, (x,))[0], y)

    def block() -> None:
        for members, x, y in ticks:
            own = {name: p if len(members) == len(p) else p[members] for name, p in leaves.items()}
            torch.autograd.grad(vmap(loss)(own, x, y).sum(), list(leaves.values()))

    return block


def ladder(workload: Workload) -> tuple[dict[str, Block], Callable[[], None]]:
    """Name → block of one epoch of the round's clients; and what ends them."""
    config = workload.config
    one = replace(workload, config=replace(config, local=replace(config.local, epochs=1)))
    setup = one.setup()
    # Forked before this process keeps freed memory, which the bare loop does not
    floor = Floor(setup, workers=1)
    begin_training(1)
    clients = batches_of(setup)
    ours = Raffed(setup, Numerics(cohort=1), in_process)
    blocks: dict[str, Block] = {
        "bare loop": floor.round,
        "raffed, serial": ours.round,
        "forward and backward": passes(setup, clients),
        "forward, backward and fused update": passes(setup, clients, update=True),
        "forward and backward, bf16": passes(setup, clients, low=True),
    }
    closing = [floor.close, ours.close]
    if workload.all_digits:
        stacked = Raffed(setup, Numerics(cohort=workload.cohort), in_process)
        blocks |= {
            "raffed, one stack": stacked.round,
            "forward and backward, stacked": stacked_passes(setup, clients),
        }
        closing.append(stacked.close)

    def close() -> None:
        for end in closing:
            end()

    return blocks, close


def measure(workload: Workload, repetitions: int) -> dict[str, tuple[list[float], list[float]]]:
    """Block → (seconds of each repetition, their ratios to the bare loop's)."""
    blocks, close = ladder(workload)
    times = max(1, workload.block // 2)
    for block in blocks.values():
        block()  # what torch does only once
    seconds: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(repetitions):
        for name, block in blocks.items():
            began = time.perf_counter()
            for _ in range(times):
                block()
            seconds[name].append((time.perf_counter() - began) / times)
    close()
    floor = seconds["bare loop"]
    return {name: (own, [a / b for a, b in zip(own, floor, strict=True)]) for name, own in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=[w.name for w in WORKLOADS], help="a workload; repeat for more"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    chosen = parser.parse_args()
    several = [w for w in WORKLOADS if not chosen.only or w.name in chosen.only]
    # A process each: a bare loop forked from one that keeps freed memory would keep it as well
    if len(several) > 1:
        for workload in several:
            again = ["--only", workload.name, "--repetitions", str(chosen.repetitions)]
            subprocess.run([sys.executable, "-m", "benchmarks.kernels", *again], check=True)
        return
    for workload in several:
        table = Table(title=f"{workload.name}: {workload.text}", title_justify="left")
        for number, header in enumerate(("", "s", "ratio", "each repetition")):
            table.add_column(header, justify="right" if number in (1, 2) else "left")
        for name, (own, ratios) in measure(workload, chosen.repetitions).items():
            each = " ".join(f"{ratio:.2f}" for ratio in ratios)
            table.add_row(name, f"{statistics.median(own):.3f}", f"{statistics.median(ratios):.2f}", each)
        Console().print(table)


if __name__ == "__main__":
    main()
