"""Torch's settings, of which some belong to a thread and some to the whole process, and a run beside a
program that has others.

A run gives the same bits whatever the program around it does with torch. What belongs to a thread is set for
the steps of the run and put back. What belongs to the process is left alone, since other threads use it: a
run is refused if it is not as it should be, and ends in an error if it is changed meanwhile.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from raffed.errors import RaffedError, UsageError

T = TypeVar("T")
_one_at_a_time = threading.Lock()
TINY = 1e-42  # a float32 below the smallest normal one, 0 for a thread that flushes those


def set_threads(threads: int) -> None:
    """Torch's number of threads in the calling thread alone.

    `torch.set_num_threads` sets the caller's number and the one that threads begin with. The second is put
    back, by a thread that ends at once, so that neither the program's other threads nor other runs notice.
    """
    import torch

    if (
        torch.get_num_threads() == threads
    ):  # it also makes this thread take its first number now, and not later
        return
    with _one_at_a_time:
        usual = _in_another_thread(torch.get_num_threads)
        torch.set_num_threads(threads)
        _in_another_thread(lambda: torch.set_num_threads(usual))


def _in_another_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextlib.contextmanager
def of_a_run() -> Iterator[None]:
    """In the body, what torch keeps for each thread is as a run needs it, whatever the caller has set:
    gradients are recorded, outside inference mode and autocast, on the CPU unless said otherwise, and small
    numbers are not flushed to 0.
    """
    torch = sys.modules.get("torch")
    if torch is None:  # nobody has set anything
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if (torch.full((1,), TINY, device="cpu") * 1).item() == 0:
            torch.set_flush_denormal(False)
            stack.callback(torch.set_flush_denormal, True)
        yield


def steps_of_a_run(events: Generator[T, None, None]) -> Generator[T, None, None]:
    """The events of a run, each worked out under `of_a_run`; whoever takes an event has the settings of
    before.
    """
    with contextlib.closing(events):
        while True:
            with of_a_run():
                try:
                    event = next(events)
                except StopIteration:
                    return
            yield event


def check_switches() -> None:
    """Raise a UsageError where what belongs to the whole process is not as a run needs it."""
    for name, (found, wanted) in _switches().items():
        if found != wanted:
            raise UsageError(
                f"{name} is {found} in this process, and a run gives the same bits with {wanted} only; set "
                f"it back, "
                "or run it in processes of its own: runtime.execution = 'ray'"
            )


def check_unchanged() -> None:
    """Raise a RaffedError where that was changed while a run was going on: the round that is being
    computed may be another.
    """
    for name, (found, wanted) in _switches().items():
        if found != wanted:
            raise RaffedError(
                f"{name} became {found} while the run was going on, and decides on its bits; the rounds "
                f"before are kept: "
                f"set it back to {wanted} and resume the run"
            )


def _switches() -> dict[str, tuple[str, str]]:
    """What belongs to the whole process and decides on bits: how one asks for it → what it is, and what a
    run needs.
    """
    import torch

    return {
        "torch.get_default_dtype()": (str(torch.get_default_dtype()), "torch.float32"),
        "torch.get_float32_matmul_precision()": (torch.get_float32_matmul_precision(), "highest"),
        "torch.backends.mkldnn.enabled": (str(torch.backends.mkldnn.enabled), "True"),
    }
