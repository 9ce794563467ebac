"""Let a process compute the bits that a run asks for, or say why it cannot."""

from __future__ import annotations

from raffed.config.portable import PORTABLE, check_set
from raffed.config.run import RunConfig
from raffed.errors import UsageError
from raffed.runtime.convolution_checks import check_kernel
from raffed.runtime.machine import has_both_libraries


def begin_bits(config: RunConfig) -> None:
    """Check that this process computes a run's bits, and let torch do so for the rest of the process.

    Raises:
        UsageError: It does not: it was set up for other bits, or the processor or torch lacks what is needed.
    """
    check_set(config.numerics.bits)
    check_kernel(config)
    if config.numerics.bits != PORTABLE:
        return
    import torch

    _check_loaded(torch.backends.cpu.get_cpu_capability())
    _check_libraries(has_both_libraries())
    from raffed.core.kernels.portable import has_openblas, use_exact_roots, use_portable_products

    _check_numpy(has_openblas())
    use_exact_roots()
    use_portable_products()


def _check_loaded(vectors: str) -> None:
    if vectors != "AVX2":
        raise UsageError(
            f"numerics.bits = 'portable': torch uses {vectors} in this process and not AVX2: it was loaded "
            "before raffed.portable() was called; call that first"
        )


def _check_libraries(complete: bool) -> None:
    if not complete:
        raise UsageError(
            "numerics.bits = 'portable' is the arithmetic of MKL and oneDNN, and this torch was built "
            "without one of them; install torch from its own package index or PyPI, or leave out --numerics"
        )


def _check_numpy(openblas: bool) -> None:
    if not openblas:
        raise UsageError(
            "numerics.bits = 'portable' multiplies by the OpenBLAS of NumPy's own packages, and this NumPy "
            "was built with another library; install NumPy from PyPI, or leave out --numerics"
        )


__all__ = ["begin_bits"]
