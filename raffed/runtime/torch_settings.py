"""Keep a run's torch settings apart from those of the program around it.

A run gives the same bits whatever the program around it does with torch. Settings of a thread are set for the
steps of the run and then restored. Settings of the whole process are not touched, because other threads use
them. If they are not as needed, the run is refused. If they are changed during the run, it ends with an
error.
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
TINY = 1e-42  # a denormal float32, which becomes 0 in a thread that flushes these


def set_threads(threads: int) -> None:
    """Set torch's number of threads in the calling thread only.

    `torch.set_num_threads` sets the caller's number, and also the number with which new threads begin. The
    second one is restored by a thread that ends at once. So neither the program's other threads nor other
    runs notice.
    """
    import torch

    if torch.get_num_threads() == threads:  # the call also makes this thread fix its number now and not later
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
    """In the body, give torch's per-thread settings the values that a run needs.

    Gradients are recorded, outside inference mode and autocast. The default device is the CPU, and small
    numbers are not flushed to 0.
    """
    torch = sys.modules.get("torch")
    if torch is None:  # torch is not loaded, so nothing can be set
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
    """Yield the events of a run, computing each one under `of_a_run`.

    Between two events, the caller has its own settings.
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
    """Check the settings of the whole process that a run needs.

    Raises:
        UsageError: A setting is not as a run needs it.
    """
    for name, (found, wanted) in _switches().items():
        if found != wanted:
            raise UsageError(
                f"{name} is {found} in this process, but a run is only reproducible with {wanted}; set "
                f"it back, "
                "or run it in processes of its own: runtime.execution = 'ray'"
            )


def check_unchanged() -> None:
    """Check that these settings were not changed during the run, which could change the round being computed.

    Raises:
        RaffedError: A setting was changed.
    """
    for name, (found, wanted) in _switches().items():
        if found != wanted:
            raise RaffedError(
                f"{name} became {found} during the run, and it changes results; the rounds before are "
                f"kept: set it back to {wanted} and resume the run"
            )


def _switches() -> dict[str, tuple[str, str]]:
    """Return the settings of the whole process that affect bits, with the values that are needed.

    Each is given as the expression that reads it → (its value, the value that a run needs).
    """
    import torch

    return {
        "torch.get_default_dtype()": (str(torch.get_default_dtype()), "torch.float32"),
        "torch.get_float32_matmul_precision()": (torch.get_float32_matmul_precision(), "highest"),
        "torch.backends.mkldnn.enabled": (str(torch.backends.mkldnn.enabled), "True"),
    }
