"""One contestant in a process of its own: a JSON line in, a JSON line out.

    python -m benchmarks.contestant NAME WORKLOAD

Says {"ready": true} or {"absent": "why"} first, then answers
{"do": "block", "rounds": n}  with {"seconds": [n numbers], "steps": [n numbers], "cpu": number, "parts":
                              {name: seconds}}: a wall time and SGD steps a round, CPU seconds of this process
                              for all of them, and what the last round's time was spent on, if it counts that;
{"do": "accuracy"}            with {"accuracy": fraction of the test set};
{"do": "quit"}, or the end of its input, by ending.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from benchmarks.checkouts import AbsentError

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.workloads import Workload
    from raffed.runtime.setup import Setup


class Contestant(ABC):
    @abstractmethod
    def round(self) -> int:
        """One round of FedAvg; the SGD steps that it took."""

    def rounds(self, count: int) -> Iterator[int]:
        """Several, the steps of each as it ends."""
        for _ in range(count):
            yield self.round()

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """The global model."""

    def parts(self) -> dict[str, float]:
        """Seconds of the last round by what they were spent on, if it counts them."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """End what it started."""


class Lines:
    """The process's input and output, taken away from whatever libraries print or read."""

    def __init__(self) -> None:
        self._in = os.fdopen(os.dup(0), "r")
        self._out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)

    def say(self, **what: Any) -> None:
        print(json.dumps(what), file=self._out)

    def hear(self) -> dict[str, Any]:
        line = self._in.readline()
        return json.loads(line) if line else {"do": "quit"}


def serve(lines: Lines, setup: Setup, contestant: Contestant) -> None:
    """Answer until told to quit."""
    lines.say(ready=True)
    while (order := lines.hear())["do"] != "quit":
        if order["do"] == "block":
            cpu = time.process_time()
            seconds, steps = _timed(contestant.rounds(order["rounds"]))
            cpu = time.process_time() - cpu
            lines.say(seconds=seconds, steps=steps, cpu=cpu, parts=contestant.parts())
        else:
            lines.say(accuracy=accuracy(setup, contestant.weights()))
    contestant.close()


def _timed(rounds: Iterator[int]) -> tuple[list[float], list[int]]:
    """Seconds from the end of a round to the end of the next, and the steps of each."""
    seconds, steps, began = [], [], time.perf_counter()
    for made in rounds:
        ended = time.perf_counter()
        seconds.append(ended - began)
        steps.append(made)
        began = ended
    return seconds, steps


def accuracy(setup: Setup, weights: dict[str, Tensor]) -> float:
    """Of these weights on the global test set, in chunks that fit any memory, on a GPU if there is one."""
    import torch

    from benchmarks.workloads import initial_net
    from raffed.data.transforms import prepare_images

    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = initial_net(setup)
    counters = {name: t for name, t in net.state_dict().items() if not t.is_floating_point()}  # BatchNorm's
    net.load_state_dict({**counters, **weights})
    net.eval().to(device)
    images, labels = setup.data.test_set()
    correct = 0
    with torch.no_grad():
        for start in range(0, len(labels), 1000):
            x = prepare_images(
                images[start : start + 1000].copy(), setup.data.transform, setup.dataset.max_value
            )
            correct += int(
                (net(x.to(device))[0].argmax(1).cpu().numpy() == labels[start : start + 1000]).sum()
            )
    return correct / len(labels)


def _bare(fused: bool) -> Callable[[Lines, Workload], None]:
    def run(lines: Lines, workload: Workload) -> None:
        from benchmarks.bare import Floor

        setup = workload.setup()
        serve(lines, setup, Floor(setup, fused=fused))

    return run


def _raffed(
    ray: bool,
    stacked: bool = False,
    precision: str = "fp32",
    bits: str = "machine",
    convolutions: str = "torch",
) -> Callable[[Lines, Workload], None]:
    def run(lines: Lines, workload: Workload) -> None:
        from benchmarks import ours
        from raffed.config.sections import Numerics

        setup = workload.setup(Numerics(bits=bits))
        size = workload.cohort // ours.ACTORS if ray else workload.cohort  # a stack for each actor
        numerics = Numerics(size if stacked else 0, precision, bits, convolutions)
        serve(lines, setup, ours.Raffed(setup, numerics, ours.on_ray if ray else ours.in_process))

    return run


def _flower(lines: Lines, workload: Workload) -> None:
    from benchmarks import flower

    flower.run(lines, workload)


def _fluke(lines: Lines, workload: Workload) -> None:
    from benchmarks import fluke_research

    fluke_research.run(lines, workload)


def _pfllib(lines: Lines, workload: Workload) -> None:
    from benchmarks import pfllib

    pfllib.run(lines, workload)


def _fl_bench(workers: int) -> Callable[[Lines, Workload], None]:
    def run(lines: Lines, workload: Workload) -> None:
        from benchmarks import fl_bench

        fl_bench.run(lines, workload, workers)

    return run


def _blazefl(threads: bool) -> Callable[[Lines, Workload], None]:
    def run(lines: Lines, workload: Workload) -> None:
        from benchmarks import blazefl

        blazefl.run(lines, workload, threads)

    return run


def _pfl(processes: int) -> Callable[[Lines, Workload], None]:
    def run(lines: Lines, workload: Workload) -> None:
        from benchmarks import pfl_research

        pfl_research.run(lines, workload, processes)

    return run


CONTESTANTS: dict[str, Callable[[Lines, Workload], None]] = {
    "bare": _bare(fused=False),
    "bare-fused": _bare(fused=True),
    "raffed": _raffed(ray=True),
    "raffed-serial": _raffed(ray=False),
    "raffed-cohort": _raffed(ray=False, stacked=True),
    "raffed-cohort-2": _raffed(ray=True, stacked=True),
    "raffed-bf16": _raffed(ray=True, precision="bf16"),
    "raffed-portable": _raffed(ray=True, bits="portable"),
    "raffed-serial-portable": _raffed(ray=False, bits="portable"),
    "raffed-compiled": _raffed(ray=True, convolutions="compiled"),
    "raffed-serial-compiled": _raffed(ray=False, convolutions="compiled"),
    "raffed-cohort-compiled": _raffed(ray=False, stacked=True, convolutions="compiled"),
    "raffed-cohort-2-compiled": _raffed(ray=True, stacked=True, convolutions="compiled"),
    "flower": _flower,
    "pfl": _pfl(1),
    "pfl-2": _pfl(2),
    "fluke": _fluke,
    "pfllib": _pfllib,
    "flbench": _fl_bench(1),
    "flbench-2": _fl_bench(2),
    "blazefl": _blazefl(threads=False),
    "blazefl-threads": _blazefl(threads=True),
}
# Contestants that other environments run → the variable that names the interpreter
INTERPRETERS = {
    **dict.fromkeys(("flower", "pfl", "pfl-2", "fluke", "pfllib", "flbench", "flbench-2"), "RAFFED_PEERS"),
    **dict.fromkeys(("blazefl", "blazefl-threads"), "RAFFED_BLAZEFL"),
}


def main() -> None:
    name, number = sys.argv[1:]
    lines = Lines()
    if name.endswith("-portable"):
        import raffed

        raffed.portable()  # before torch is imported
    if name in INTERPRETERS:
        for kernel in ("_convolution", "_maxpool"):
            # They were built for this environment's Python, and a Python without the global lock dies of them
            sys.modules[f"raffed.core.kernels.{kernel}"] = None  # type: ignore[assignment]
    import torch

    from benchmarks.workloads import workload

    torch.set_num_threads(1)
    try:
        CONTESTANTS[name](lines, workload(number))
    except AbsentError as error:
        lines.say(absent=str(error))
    except ModuleNotFoundError as error:
        if name not in INTERPRETERS:
            raise
        lines.say(absent=f"{error} for {sys.executable}")


if __name__ == "__main__":
    main()
