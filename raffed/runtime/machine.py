"""What a training process learns about its machine, which settings it makes for itself, and whether it can
compute the bits that a run asks for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from raffed.config.portable import PORTABLE, check_set, is_set
from raffed.config.sections import Numerics
from raffed.errors import RaffedError, UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from raffed.models.net import Net
    from raffed.runtime.run_method import NetworkRequest

# Keep a run's torch settings apart from those of the program around it.
#
# A run gives the same bits whatever the program around it does with torch. Settings of a thread are set for
# the steps of the run and then restored. Settings of the whole process are not touched, because other
# threads use them. If they are not as needed, the run is refused. If they are changed during the run, it
# ends with an error.


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
    for name, (actual, wanted) in _switches().items():
        if actual != wanted:
            raise UsageError(
                f"{name} is {actual} in this process, but a run is only reproducible with {wanted}; set "
                f"it back, "
                "or run it in processes of its own: runtime.execution = 'ray'"
            )


def check_unchanged() -> None:
    """Check that these settings were not changed during the run, which could change the round being computed.

    Raises:
        RaffedError: A setting was changed.
    """
    for name, (actual, wanted) in _switches().items():
        if actual != wanted:
            raise RaffedError(
                f"{name} became {actual} during the run, and it changes results; the rounds before are "
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


KEPT = 1 << 30  # bytes of freed memory that a process keeps for itself
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # of mallopt(3)
LARGEST = 32 << 20  # bytes; the largest threshold that glibc accepts
KERNELS = "RAFFED_KERNELS"
GRAPHS = "RAFFED_CUDA_GRAPHS"
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def usable_cores() -> int:
    """Return the number of cores that this process may use, or of all cores if the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bf16_gain() -> float:
    """Measure how many times faster a product of 64 x 512 x 512 is in bf16 than in float32.

    The product is computed on one core of this processor, now.

    The processor's instructions are not enough to know: a Xeon with avx512_bf16 whose AMX is hidden by the
    hypervisor takes 1.7 times as long in bf16. Use it only in messages. It is a timing, so it must never
    select an implementation.
    """
    import torch

    threads = torch.get_num_threads()
    set_threads(1)
    try:
        with torch.no_grad():
            factors = torch.ones(64, 512), torch.ones(512, 512)
            single, low = (
                _seconds(*(factor.to(kind) for factor in factors)) for kind in (torch.float32, torch.bfloat16)
            )
    finally:
        set_threads(threads)
    return single / low


def _seconds(a: Tensor, b: Tensor) -> float:
    """Return the least of five timings, after one product that lets torch choose its kernel.

    The least is taken, because other work on the machine can only add time.
    """
    took = []
    for _ in range(6):
        began = time.perf_counter()
        a @ b.mT
        took.append(time.perf_counter() - began)
    return min(took[1:])


def has_both_libraries() -> bool:
    """Return whether torch has MKL, and oneDNN with the products that raffed uses."""
    import torch

    return torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def uses_onednn() -> bool:
    """Return whether this process computes large linear layers by oneDNN and not by MKL, which torch uses.

    MKL uses only half of AVX-512's vectors on processors that are not made by Intel. Only the machine
    decides, so that results stay reproducible bit for bit on it. For portable bits it never does: OpenBLAS
    computes them (core/kernels/portable.py).
    """
    import torch

    if is_set() or not has_both_libraries():
        return False
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    text = _text("/proc/cpuinfo")
    return text is not None and "GenuineIntel" not in text


def linear_library() -> str:
    """Return the library of large linear layers: OpenBLAS, oneDNN, or what torch chooses."""
    if is_set():
        return "OpenBLAS"
    return "oneDNN" if uses_onednn() else "torch"


def kernels_enabled() -> bool:
    """Return whether raffed replaces layers by faster ones (`core.kernels.optimise`).

    RAFFED_KERNELS=off prevents it, for a comparison with plain torch or for the search for a mistake. Bits
    depend on it. So the variable must have the same value in every process of a run, and run.json records
    "off".

    Raises:
        UsageError: The variable has a value other than "on" and "off".
    """
    return _is_on(KERNELS)


def graphs_enabled() -> bool:
    """Return whether steps of training that repeat are recorded as CUDA graphs on a GPU.

    RAFFED_CUDA_GRAPHS=off prevents it, for the search for a mistake or to save memory of the GPU. The bits
    are the same.

    Raises:
        UsageError: The variable has a value other than "on" and "off".
    """
    return _is_on(GRAPHS)


def _is_on(name: str) -> bool:
    value = os.environ.get(name, "on")
    if value not in ("on", "off"):
        raise UsageError(f"{name} = {value!r}: it can be 'on' (the default) or 'off'")
    return value == "on"


def processor(cpuinfo: str = "/proc/cpuinfo") -> str:
    """Return the processor's name, or "" if the system does not say (other than Linux, and on ARM)."""
    lines = (line.partition(":") for line in (_text(cpuinfo) or "").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "model name"), "")


def gpu_of(device: torch.device) -> dict[str, str]:
    """Return the name of the GPU on which a process trains, for run.json, or nothing for the CPU."""
    import torch

    return {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}


def _text(path: str) -> str | None:
    """Return the contents of a system file, or None if there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return None


def begin_training(threads: int) -> None:
    """Set torch's number of threads in this process and this thread, and keep freed memory.

    A thread can have a number of its own, so both are set.
    """
    import torch

    torch.set_num_threads(threads)
    keep_freed_memory()


def deterministic_kernels() -> None:
    """Make a GPU compute the same bits every time, for the rest of this process.

    cuDNN and cuBLAS then use kernels without atomic sums. torch uses its deterministic kernels where it has
    some, and otherwise warns. It must be called before the first product on the GPU.
    """
    import torch

    # The faster of the two sizes with which cuBLAS is deterministic
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # uninitialised memory is never read here


def keep_freed_memory() -> bool:
    """Keep up to 1 GiB of freed memory for the rest of this process, and return whether that was possible.

    It is possible with glibc's allocator. By default glibc returns the memory of a step's activations to the
    kernel and has to fault it in again in the next step. That costs 4,000 to 7,000 page faults per step of
    TFCNN at batch 64, a fifth of its time (71.0 ms instead of 56.8 ms). The peak memory does not change. If
    the user has set glibc's variables, they are respected.
    """
    if sys.platform != "linux" or any(name in os.environ for name in OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl has no mallopt
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, KEPT))


# Whether this process can compute the bits that a run asks for, also those of the compiled convolutions.


COMPILED: Final = "compiled"


def check_kernel(numerics: Numerics) -> None:
    """Check that this process has the kernel that a run asks for.

    Raises:
        UsageError: It has not.
    """
    if numerics.convolutions != COMPILED:
        return
    from raffed.core.kernels import convolution

    asked = "numerics.convolutions = 'compiled'"
    if not convolution.built:
        raise UsageError(
            f"{asked}: this machine does not have raffed's kernel, because raffed was installed without a C "
            "compiler or the processor has no AVX2 and FMA; install a C compiler and then raffed again, or "
            "use 'torch'"
        )
    if not kernels_enabled():
        raise UsageError(f"{asked}, but {KERNELS} = 'off' forbids it; unset {KERNELS}, or use 'torch'")


def check_use(net: Net, name: str) -> None:
    """Check that the kernel computes a layer of a network.

    Raises:
        UsageError: It computes none, so the setting would have no effect.
    """
    if not computes(net):
        raise UsageError(
            f"numerics.convolutions = 'compiled' has no effect on {name}: it computes convolutions of stride "
            "1 with a multiple of 8 outputs and at most 262,144 weights, in networks of raffed's own or in "
            "an nn.Sequential; use 'torch', or another network (--model)"
        )


def computes(net: Net) -> bool:
    """Return whether the kernel computes a layer of a network. The network is changed."""
    from raffed.core.kernels import optimise
    from raffed.core.kernels.convolution import CompiledConv2d

    if not net.rewritable:
        return False
    optimise(net, convolutions=True)
    return any(isinstance(layer, CompiledConv2d) for layer in net.modules())


def could_be_compiled(
    network: NetworkRequest, on_gpu: bool, shape: tuple[int, ...], classes: int, dtype: str
) -> bool:
    """Return whether a run whose convolutions are torch's could have compiled ones, in this process.

    Args:
        network: The run's network.
        on_gpu: Whether the run trains on a GPU.
        shape: Shape of one prepared input.
        classes: Number of classes C.
        dtype: Type of the prepared inputs, "float32" or "int64".
    """
    from raffed.core.kernels import convolution

    on_cpu = network.numerics.precision == "fp32" and not on_gpu
    if not (on_cpu and convolution.built and kernels_enabled()):
        return False
    return computes(network.build(shape, classes, dtype))


def begin_bits(numerics: Numerics) -> None:
    """Check that this process computes a run's bits, and let torch do so for the rest of the process.

    Raises:
        UsageError: It does not: it was set up for other bits, or the processor or torch lacks what is needed.
    """
    check_set(numerics.bits)
    check_kernel(numerics)
    if numerics.bits != PORTABLE:
        return
    import torch

    if (vectors := torch.backends.cpu.get_cpu_capability()) != "AVX2":
        raise UsageError(
            f"numerics.bits = 'portable': torch uses {vectors} in this process and not AVX2: it was loaded "
            "before raffed.portable() was called; call that first"
        )
    if not has_both_libraries():
        raise UsageError(
            "numerics.bits = 'portable' is the arithmetic of MKL and oneDNN, and this torch was built "
            "without one of them; install torch from its own package index or PyPI, or leave out --numerics"
        )
    from raffed.core.kernels.portable import has_openblas, use_exact_roots, use_portable_products

    if not has_openblas():
        raise UsageError(
            "numerics.bits = 'portable' multiplies by the OpenBLAS of NumPy's own packages, and this NumPy "
            "was built with another library; install NumPy from PyPI, or leave out --numerics"
        )
    use_exact_roots()
    use_portable_products()
