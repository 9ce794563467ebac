"""What a process that trains has of its machine, and sets for itself."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

KEPT = 1 << 30  # bytes of freed memory that a process keeps
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # of mallopt(3)
LARGEST = 32 << 20  # bytes; glibc takes no larger threshold
BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16", "svebf16")  # of x86 and of ARM
# Of versions 2 and 1: the limit, what is used, and under which name of which file the cache in it is
CGROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def usable_cores() -> int:
    """The cores that this process may use, where the system says; else all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bf16_in_hardware(cpuinfo: str = "/proc/cpuinfo") -> bool | None:
    """Whether this machine's processor multiplies in bf16 itself; None where the system does not say (not
    Linux).

        Without, torch emulates it: a round of LeNet took 9 times as long as in fp32 on one without AVX-512.
    """
    text = _text(cpuinfo)
    return None if text is None else not set(text.split()).isdisjoint(BF16_FLAGS)


def bf16_gain() -> float:
    """How many times as fast as in float32 a product of 64 x 512 x 512 is in bf16, on one core of this
    processor, now.

        Instructions for it do not settle that: a Xeon with avx512_bf16 whose AMX the hypervisor hides takes
        1.7 times as long. For words alone, never for a choice: it is a clock that says so.
    """
    import torch

    from raffed.runtime.torch_settings import set_threads

    threads = torch.get_num_threads()
    set_threads(1)
    try:
        with torch.no_grad():
            factors = torch.ones(64, 512), torch.ones(512, 512)
            single, low = (
                _seconds(*(one.to(kind) for one in factors)) for kind in (torch.float32, torch.bfloat16)
            )
    finally:
        set_threads(threads)
    return single / low


def _seconds(a: Tensor, b: Tensor) -> float:
    """The least of five products, after one that chooses its kernel: others on the machine only add."""
    took = []
    for _ in range(6):
        began = time.perf_counter()
        a @ b.mT
        took.append(time.perf_counter() - began)
    return min(took[1:])


def onednn_is_faster(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Whether large float32 products are faster by oneDNN than by MKL, torch's library for them: MKL uses
    half of the vectors of AVX-512 on processors that are not Intel's. By the machine alone, so that its bits
    stay the same.
    """
    import torch

    if not (torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):  # type: ignore[no-untyped-call]
        return False
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    text = _text(cpuinfo)
    return text is not None and "GenuineIntel" not in text


def processor(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The processor's name, "" where the system does not say (not Linux; ARM's cores have none there)."""
    lines = (line.partition(":") for line in (_text(cpuinfo) or "").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "model name"), "")


def gpu_of(device: torch.device) -> dict[str, str]:
    """The name of a GPU that a process trains on, for run.json; nothing for the CPU."""
    import torch

    return {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}


def _text(path: str) -> str | None:
    """What a file of the system says; None where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return None


def free_memory(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> float | None:
    """Bytes of memory that this process can still take: what the machine has available, within the limit of
    its container (cgroup version 2 or 1), whose file cache counts as free. None where it cannot be told (not
    Linux).
    """
    free = _entry(Path(meminfo), "MemAvailable:")
    if free is None:
        return None
    free *= 1024
    for limit, used, stat, cache in CGROUPS:
        most, now = _number(Path(cgroup) / limit), _number(Path(cgroup) / used)
        if most is not None and now is not None:
            free = min(free, max(most - now + (_entry(Path(cgroup) / stat, cache) or 0.0), 0.0))
    return free


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such limit, or "max"
        return None


def _entry(path: Path, name: str) -> float | None:
    """The number behind `name` in a file of lines "name number ..."."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)


def begin_training(threads: int) -> None:
    """`threads` for torch in this process and in this thread, whose own number may be another, and freed
    memory kept.
    """
    import torch

    torch.set_num_threads(threads)
    keep_freed_memory()


def deterministic_kernels() -> None:
    """Let a GPU compute the same bits every time, in this process, for good: cuDNN's and cuBLAS's kernels
    without atomic sums, and torch's own where it has both kinds; where it has one only, torch warns. To be
    called before the first product there.
    """
    import torch

    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # of the sizes with which cuBLAS is deterministic, the faster
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # nothing here reads any


def keep_freed_memory() -> bool:
    """Keep up to 1 GiB of freed memory in this process, for good, where its allocator is glibc's; whether
    that was done.

        By itself glibc gives the activations of a step back to the kernel and faults them in again in the
        next: 4,000 to 7,000 page faults a step of TFCNN at batch 64, a fifth of its time (56.8 ms instead of
        71.0). The peak stays what it was. Whoever has set glibc's variables keeps them.
    """
    if sys.platform != "linux" or any(name in os.environ for name in OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, KEPT))
