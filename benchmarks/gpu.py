"""Rounds on one GPU: client actors of 1/k of it one by one and in stacks, against a bare PyTorch loop in one
process.

    python -m benchmarks.gpu [--only W6] [--contestants bare,actors-1,actors-4,stacks-1] [--repetitions
    3] [--random-images] [--out FILE.json]

W2 and W4 are those of round_time; W6 is a ResNet-18 on CIFAR-10, ten clients of 5,000 images, batch 64. One
contestant after the other, each in a process of its own and alone on the card: a round to warm up, then
blocks. For each: seconds a round, its ratio to the bare loop's, images trained on a second, the card's memory
above what it was before (nvidia-smi), and the share of the card's peak: floating-point operations of the
passes (torch counts them, for one image, forwards and backwards) a second, over those of a product of two
8192 x 8192 matrices, measured first: in bf16, or in TF32 for fp32, as torch lets convolutions do. The bare
loop takes whatever kernels cuDNN likes, raffed the deterministic ones. `--device cpu` rehearses it where
there is no GPU. Names: bare, actors-K and stacks-K for K actors of 1/K each (stacks of 10/K clients); any of
them with -bf16, and raffed's also with -unrecorded, without CUDA graphs. pfl, flower and flbench are other
packages, in the interpreter that RAFFED_PEERS names; a row says so where one is absent or fails.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import ours
from benchmarks.bare import client_tensors, train
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.process import GoneError, Process, command
from benchmarks.race import TIMEOUT
from benchmarks.random_images import with_random_images
from benchmarks.report import plot
from benchmarks.round_time import machine
from benchmarks.workloads import RESNET, WORKLOADS, BenchmarkSetup, Workload, initial_net
from raffed import Numerics
from raffed.runs.participation import draw_participants
from raffed.runtime.machine import GRAPHS
from raffed.runtime.setup import Setup

KNOWN = {w.name: w for w in (*WORKLOADS, RESNET)}
PEERS = ("pfl", "flower", "flbench")  # other packages, where they are installed and know the workload
NAMES = (
    "bare",
    "actors-1",
    "actors-1-unrecorded",
    "actors-2",
    "actors-4",
    "stacks-1",
    "stacks-1-unrecorded",
    "stacks-2",
    "bare-bf16",
    "actors-4-bf16",
    "stacks-1-bf16",
    *PEERS,
)
SIDE = 8192  # of the matrices whose product is the peak


def known(number: str, kind: str) -> Workload:
    """Return a workload with its published images, or with random ones."""
    return with_random_images(KNOWN[number]) if kind == "random" else KNOWN[number]


class Floor(Contestant):
    """The bare loop on a device: data there from the start, plain torch.optim.SGD, a client after the
    other.
    """

    def __init__(self, setup: Setup, device: str, low: bool) -> None:
        self.setup, self.device, self.low = setup, device, low
        clients = range(setup.partition.num_clients)
        self.data = [tuple(part.to(device) for part in client_tensors(setup, client)) for client in clients]
        self.net = initial_net(setup).to(device)
        self.vector = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach().clone()
        self.round_number = 0

    def round(self) -> int:
        participants = draw_participants(self.setup.data, self.round_number)
        self.round_number += 1
        total, steps = sum(len(self.data[c][1]) for c in participants), 0
        summed = torch.zeros_like(self.vector, dtype=torch.float64)
        for client in participants:
            x, y = self.data[client]
            torch.nn.utils.vector_to_parameters(self.vector.clone(), self.net.parameters())
            with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.low):
                steps += train(self.net, x, y, self.setup.config.local)
            summed += (
                len(y) / total * torch.nn.utils.parameters_to_vector(self.net.parameters()).detach().double()
            )
        self.vector = summed.float()
        self.vector.cpu()  # a round ends when the server has it
        return steps

    def weights(self) -> dict[str, Tensor]:
        torch.nn.utils.vector_to_parameters(self.vector.clone(), self.net.parameters())
        return {name: t.cpu() for name, t in self.net.state_dict().items()}

    def close(self) -> None: ...


def contestant(name: str, workload: Workload, device: str) -> tuple[Setup, Contestant]:
    """By name; raises ValueError for one that there is not."""
    plain = name.removesuffix("-unrecorded")
    low = plain.endswith("-bf16")
    kind, _, number = plain.removesuffix("-bf16").partition("-")
    setup = workload.setup()
    if kind == "bare" and not number and plain == name:
        return setup, Floor(setup, device, low)
    if kind not in ("actors", "stacks") or not number.isdigit():
        raise ValueError(
            f"no contestant {name!r}; there are bare, actors-K and stacks-K, with or without -bf16, the last "
            "two also with -unrecorded after it"
        )
    if plain != name:
        os.environ[GRAPHS] = "off"  # this process is the contestant's own, and its actors inherit it
    actors, share = int(number), 0.0 if device == "cpu" else 1 / int(number)
    runtime = dataclasses.replace(setup.config.runtime, actors=actors, gpu_fraction=share)
    setup = BenchmarkSetup(dataclasses.replace(setup.config, runtime=runtime), setup.dataset, setup.partition)
    stack = max(2, workload.cohort // actors) if kind == "stacks" else 0
    return setup, ours.Raffed(
        setup, Numerics(stack, "bf16" if low else "fp32"), functools.partial(ours.on_ray, actors=actors)
    )


def flops_an_image(setup: Setup, batch: int = 2) -> float:
    """Of one image's forward and backward pass: multiplications and additions of products and
    convolutions, as torch counts.
    """
    net = initial_net(setup).train()
    x, y = torch.zeros(batch, *setup.data.input_shape), torch.zeros(batch, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(net(x)[0], y).backward()
    return counter.get_total_flops() / batch


def images_a_round(setup: Setup) -> float:
    """That the clients of the first round train on, all epochs."""
    return sum(len(setup.partition.train[c]) for c in draw_participants(setup.data, 0)) * float(
        setup.config.local.epochs
    )


def peak(device: str, kind: torch.dtype, side: int = SIDE) -> float:
    """Floating-point operations a second of a product in this type, float32 rounded to TF32 on a GPU; the
    best of five.
    """
    torch.backends.cuda.matmul.allow_tf32 = True
    a = torch.ones(side, side, device=device, dtype=kind)
    took = []
    for _ in range(6):
        began = time.perf_counter()
        (a @ a)[0, 0].item()
        took.append(time.perf_counter() - began)
    return 2 * side**3 / min(took[1:])


class Watch:
    """The largest memory of the first card, used by everybody, above that at the start, while it is entered.

    One nvidia-smi writes it twice a second. To start one for each number would stop the card's work.
    """

    def __enter__(self) -> Watch:
        self._used: list[float] = []
        ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
        try:
            self._process = subprocess.Popen([*ask, "--loop-ms=500"], stdout=subprocess.PIPE, text=True)
        except OSError:  # no GPU
            self._process = subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self._used.append(float(line))

    @property
    def most(self) -> float:
        return max(self._used) - self._used[0] if self._used else 0.0

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()


def measure(
    name: str, workload: Workload, device: str, repetitions: int, rounds: int, images: str
) -> dict[str, Any]:
    """A row: medians of a contestant that is alone on the card; `note` says why there are none."""
    row: dict[str, Any] = {
        "contestant": name,
        "blocks": [],
        "steps": [],
        "mib": None,
        "start_s": None,
        "first_s": None,
    }
    row |= {"accuracy": None, "note": None, "parts": {}}
    try:
        with Watch() as watch:
            lane = [sys.executable, "-m", "benchmarks.gpu", "--lane", name, workload.name, device, images]
            theirs = name in PEERS
            process = Process(
                command(name, workload.name) if theirs else lane, {"RAFFED_PEERS_DEVICE": device}
            )
            try:
                row["start_s"] = process.start(TIMEOUT)
                row["first_s"] = process.ask(TIMEOUT, do="block", rounds=1)["seconds"][0]
                for _ in range(repetitions):
                    answer = process.ask(TIMEOUT, do="block", rounds=rounds)
                    row["blocks"].append(statistics.median(answer["seconds"]))
                    row["steps"] = sorted({*row["steps"], *answer["steps"]})
                    row["parts"] = answer["parts"]
                row["accuracy"] = process.ask(TIMEOUT, do="accuracy")["accuracy"]
            finally:
                process.close()
        row["mib"] = watch.most or None
    except GoneError as gone:
        row["note"] = str(gone)
    return row


def completed(rows: list[dict[str, Any]], images: float, flops: float, peaks: dict[str, float]) -> None:
    """Add to each row its seconds, its ratios to the bare loop in fp32, images a second and share of the
    peak.
    """
    floor = next(
        (statistics.median(r["blocks"]) for r in rows if r["contestant"] == "bare" and r["blocks"]), None
    )
    for row in rows:
        seconds = statistics.median(row["blocks"]) if row["blocks"] else None
        row["seconds"], row["images_s"] = seconds, images / seconds if seconds else None
        row["ratios"] = [block / floor for block in row["blocks"]] if floor else []
        row["ratio"] = statistics.median(row["ratios"]) if row["ratios"] else None
        kind = "bf16" if "-bf16" in row["contestant"] else "fp32"
        row["share"] = row["images_s"] * flops / peaks[kind] if seconds else None


def table(result: dict[str, Any]) -> Table:
    made = Table(title=f"{result['workload']}: {result['text']}", title_justify="left")
    for number, header in enumerate(
        (
            "contestant",
            "s a round",
            "ratio",
            "each repetition",
            "images/s",
            "of the peak",
            "MiB",
            "steps",
            "accuracy",
            "start, s",
        )
    ):
        made.add_column(header, justify="left" if number in (0, 3) else "right")
    for row in result["rows"]:
        each = row["note"] or " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        shown = [
            (row["seconds"], "{:.3f}"),
            (row["ratio"], "{:.2f}"),
            (row["images_s"], "{:,.0f}"),
            (row["share"], "{:.1%}"),
            (row["mib"], "{:.0f}"),
            (row["accuracy"], "{:.3f}"),
            (row["start_s"], "{:.1f}"),
        ]
        text = ["–" if value is None else form.format(value) for value, form in shown]
        steps = "/".join(str(n) for n in row["steps"])
        made.add_row(row["contestant"], text[0], text[1], each, *text[2:5], steps, *text[5:])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(KNOWN), default=["W6", "W2", "W4"])
    parser.add_argument("--contestants", default=",".join(NAMES))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="rounds in a block (default: the workload's)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--random-images", action="store_true", help="for a machine without the data")
    parser.add_argument("--lane", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    kind = "random" if options.random_images else "published"
    if options.lane:
        name, number, device, kind = options.lane
        lines = Lines()
        torch.set_num_threads(1)
        serve(lines, *contestant(name, known(number, kind), device))
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu rehearses")
    side = SIDE if options.device == "cuda" else 512
    peaks = {
        name: peak(options.device, kind, side)
        for name, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    }
    about = machine() | {
        "card": torch.cuda.get_device_name() if options.device == "cuda" else "none",
        "peaks": peaks,
    }
    console = Console(width=max(Console().width, 150))
    console.print(
        f"{about['card']}: "
        + ", ".join(f"{name} product {rate / 1e12:.1f} TFLOP/s" for name, rate in peaks.items())
    )
    results: list[dict[str, Any]] = []
    for number in options.only:
        workload = known(number, kind)
        setup = workload.setup()
        result = {"workload": number, "text": workload.text, "rows": []}
        results.append(result)
        images, flops = images_a_round(setup), flops_an_image(setup)
        for name in options.contestants.split(","):
            result["rows"].append(
                measure(
                    name,
                    workload,
                    options.device,
                    options.repetitions,
                    options.rounds or workload.block,
                    kind,
                )
            )
            completed(result["rows"], images, flops, peaks)
            if options.out:  # after each: a lent machine may be taken back
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps({"machine": about, "results": results}, indent=2) + "\n")
        console.print(table(result))
        for row in result["rows"]:
            if row["parts"]:
                spent = ", ".join(f"{name} {seconds:.3f}" for name, seconds in row["parts"].items())
                console.print(f"seconds of the last round of {row['contestant']}: {spent}")
    if options.out and all(any(row["ratio"] for row in result["rows"]) for result in results):
        plot(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
