"""Let a process compute the bits that a run asks for, or say why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raffed.config.portable import PORTABLE, check_set
from raffed.config.sections import Numerics
from raffed.errors import UsageError
from raffed.runtime.machine import KERNELS, has_both_libraries, kernels_enabled

if TYPE_CHECKING:
    from raffed.models.net import Net
    from raffed.runtime.run_method import NetworkRequest

# Whether the compiled kernel can compute a run's convolutions, and whether it computes any.


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
