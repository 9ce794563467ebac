"""Bits that hold on every x86-64 processor with AVX2: the environment in which they are computed.

torch, oneDNN, MKL, NumPy and OpenBLAS choose instructions by the processor when they are loaded, and other
instructions round differently. The variables here fix the choice. They have an effect only if they are set
before these libraries are loaded, so this module imports neither torch nor NumPy.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.errors import UsageError

if TYPE_CHECKING:
    from raffed.config.validation import Json

MARK = "RAFFED_BITS"  # set together with the others, and inherited by the processes that this one starts
PORTABLE = "portable"
NEEDED = ("avx2", "fma", "f16c", "bmi1", "bmi2")  # of AVX2's generation; oneDNN and NumPy use them together
LOADED_TOO_LATE = ("numpy", "torch")
_FIXED = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions and large products
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    "MKL_CBWR": "COMPATIBLE",  # all other products; MKL ignores AVX2 on processors that Intel did not make
    "OPENBLAS_CORETYPE": "Haswell",  # NumPy's products
    "OPENBLAS_NUM_THREADS": "1",
}
# What NumPy calls the instructions beyond AVX2. It ignores names of those that a processor does not have
_NUMPY_2_4 = "X86_V4 AVX512_ICL AVX512_SPR"
_NUMPY_BEFORE = (
    "AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
)


class BitsTooLateError(UsageError):
    """This process loaded NumPy or torch before it was set up for portable bits."""


def portable() -> dict[str, str]:
    """Set this process up for `numerics.bits = "portable"`. Call it before NumPy and torch are imported.

    It sets environment variables, which processes inherit that this one starts. All runs of this process
    must then be portable.

    Returns:
        The variables. A Ray that was started elsewhere needs them in its `runtime_env` as `env_vars`.

    Raises:
        BitsTooLateError: NumPy or torch is loaded already.
        UsageError: This is not Linux on an x86-64 processor with AVX2.

    Example:
        import raffed

        raffed.portable()
        raffed.run(raffed.RunConfig(numerics=raffed.Numerics(bits="portable")))
    """
    check_machine(sys.platform, platform.machine(), flags_of())
    if not is_set():
        if loaded := [name for name in LOADED_TOO_LATE if name in sys.modules]:
            raise BitsTooLateError(
                f"numerics.bits = 'portable' must be set up before {' and '.join(loaded)} can be imported, "
                "which this process has done; call raffed.portable() first, or use the command line "
                "(python -m raffed run --numerics portable)"
            )
        os.environ.update(variables())
    return variables()


def variables() -> dict[str, str]:
    """Return the environment of portable bits as name → value."""
    return {MARK: PORTABLE, **_FIXED, "NPY_DISABLE_CPU_FEATURES": _beyond_avx2(metadata.version("numpy"))}


def is_set() -> bool:
    """Return whether this process was set up for portable bits before NumPy and torch were loaded.

    Raises:
        UsageError: It was, but a variable has been changed since.
    """
    if os.environ.get(MARK) != PORTABLE:
        return False
    for name, wanted in variables().items():
        if (value := os.environ.get(name)) != wanted:
            raise UsageError(
                f"{name} is {value!r} in this process, but portable bits need {wanted!r}, and {MARK} says "
                f"that it is set up for them; unset {MARK}, and raffed sets all that is needed"
            )
    return True


def set_where_possible(numerics: Json) -> None:
    """Set this process up if a configuration asks for portable bits and nothing heavy is loaded yet.

    Otherwise the run is refused later, and the command line begins again with the environment set.

    Args:
        numerics: The section `numerics`, which need not be valid.
    """
    asked = numerics.get("bits") if isinstance(numerics, dict) else None
    if asked == PORTABLE and not any(name in sys.modules for name in LOADED_TOO_LATE):
        portable()


def check_set(bits: str) -> None:
    """Check that this process computes the bits that a run asks for.

    Raises:
        BitsTooLateError: The run is portable and this process is not.
        UsageError: This process is portable and the run is not.
    """
    if bits == PORTABLE:
        portable()
    elif is_set():
        raise UsageError(
            f"numerics.bits = {bits!r}, but this process computes portable bits (raffed.portable() was "
            f"called, or {MARK} is set); use a process of its own, or unset {MARK}"
        )


def check_machine(system: str, machine: str, flags: Collection[str]) -> None:
    """Check that a machine can compute portable bits.

    Args:
        system: Name of the system, as `sys.platform` gives it.
        machine: Name of the architecture, as `platform.machine` gives it.
        flags: What the processor can do, in Linux's words.

    Raises:
        UsageError: It cannot.
    """
    if machine.lower() not in ("x86_64", "amd64"):
        raise UsageError(
            f"numerics.bits = 'portable': this processor is {machine}, and the bits are those of x86-64 "
            "processors with AVX2, which no other can have; leave out --numerics, or use such a machine"
        )
    if system != "linux":
        raise UsageError(
            f"numerics.bits = 'portable': this system is {system}, and the bits were compared on Linux only, "
            "because exponentials are computed by the system's C library; leave out --numerics, or use Linux"
        )
    if missing := [name for name in NEEDED if name not in flags]:
        raise UsageError(
            f"numerics.bits = 'portable' needs a processor with AVX2 and FMA (made since 2013), and this one "
            f"has no {' and no '.join(missing)}; leave out --numerics, or use another machine"
        )


def flags_of(cpuinfo: str = "/proc/cpuinfo") -> list[str]:
    """Return what this machine's first processor can do, in Linux's words, or nothing if it is not said."""
    try:
        text = Path(cpuinfo).read_text(encoding="utf-8")
    except OSError:
        return []
    lines = (line.partition(":") for line in text.splitlines())
    return next((words.split() for name, _, words in lines if name.strip() == "flags"), [])


def _beyond_avx2(numpy: str) -> str:
    major, minor = (int(part) for part in numpy.split(".")[:2])
    return _NUMPY_2_4 if (major, minor) >= (2, 4) else _NUMPY_BEFORE
